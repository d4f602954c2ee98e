package symbol_test

import (
	"fmt"
	"log"
	"os"
	"reflect"

	"hallmark/addr"
	"hallmark/symbol"
)

// Look up an address of a program, here of this one: its functions, with what was inlined there.
func ExampleFile_LookupVirt() {
	name, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	at := addr.Virt(reflect.ValueOf(ExampleFile_LookupVirt).Pointer()) // this program runs where it was linked
	r := file.LookupVirt(at)
	if len(r.Frames) == 0 {
		log.Fatal(r.Reason)
	}
	outermost := r.Frames[len(r.Frames)-1]
	fmt.Println(outermost.Func)
	// Output: hallmark/symbol_test.ExampleFile_LookupVirt
}

// Make an index of a program, and look the address up in it: an index is a file that answers at once, on
// any machine, also when the program and its debug information are gone.
func ExampleFile_Index() {
	name, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	index, err := file.Index(symbol.IndexOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()
	r := index.LookupVirt(addr.Virt(reflect.ValueOf(ExampleFile_Index).Pointer()))
	if len(r.Frames) == 0 {
		log.Fatal(r.Reason)
	}
	fmt.Println(r.Frames[len(r.Frames)-1].Func)
	// Output: hallmark/symbol_test.ExampleFile_Index
}
