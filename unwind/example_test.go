package unwind_test

import (
	"fmt"
	"log"
	"os"

	"hallmark/unwind"
)

// Make the table by which callers are found in a file without frame pointers, keep its bytes, and use them
// again.
func ExampleBuild() {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Build(f, unwind.BuildOptions{})
	if err != nil {
		log.Fatal(err)
	}
	kept, err := unwind.Parse(table.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(kept.Rows() == table.Rows(), table.Rows() > 0)
	// Output: true true
}
