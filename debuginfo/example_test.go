package debuginfo_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"reflect"

	"hallmark/addr"
	"hallmark/debuginfo"
)

// Ask for functions by file: debug files, indexes and debuginfod servers that have more to say are found
// by the identity of the file.
func ExampleLibrary_OpenFile() {
	name, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	var library debuginfo.Library
	symbols, err := library.OpenFile(context.Background(), name)
	if err != nil {
		log.Fatal(err)
	}
	defer symbols.Close()
	r := symbols.LookupVirt(addr.Virt(reflect.ValueOf(ExampleLibrary_OpenFile).Pointer()))
	if len(r.Frames) == 0 {
		log.Fatal(r.Reason)
	}
	fmt.Println(r.Frames[len(r.Frames)-1].Func)
	// Output: hallmark/debuginfo_test.ExampleLibrary_OpenFile
}
