package inventory_test

import (
	"fmt"
	"log"
	"os"

	"hallmark/inventory"
)

// List the code that a process has mapped, and whether the file is still the one on disk.
func ExampleTake() {
	inv, err := inventory.Take(inventory.Options{PIDs: []int{os.Getpid()}})
	if err != nil {
		log.Fatal(err)
	}
	inv.LookAtDisk()
	for _, p := range inv.Processes {
		program := p.Code[p.Program]
		fmt.Println(p.PID == os.Getpid(), !program.ID.IsZero(), program.Disk)
	}
	// Output: true true same
}
