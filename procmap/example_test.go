package procmap_test

import (
	"fmt"
	"log"
	"os"
	"reflect"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/procmap"
)

// Turn an address of a running process, here of this one, into the identity of the file that its code is
// from and the offset there: all that a symbolizer needs, on any machine and at any later time.
func ExampleProcess_Locate() {
	p, err := procmap.Open(os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	here := addr.Abs(reflect.ValueOf(ExampleProcess_Locate).Pointer())
	located, err := p.Locate([]addr.Abs{here, 1})
	if err != nil {
		log.Fatal(err)
	}
	program, err := buildid.ReadFile("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range located {
		if l.Identity.ID.IsZero() {
			fmt.Println("unknown, because:", l.Identity.Reason)
			continue
		}
		fmt.Println("of this program:", l.Identity.ID == program.ID, "and at an offset in its file:", l.InFile)
	}
	// Output:
	// of this program: true and at an offset in its file: true
	// unknown, because: address is in no mapping
}
