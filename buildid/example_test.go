package buildid_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"hallmark/buildid"
)

// Read the identity of a file, and compare it with one that a profile has.
func ExampleReadFile() {
	info, err := buildid.ReadFile("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	same, err := buildid.Parse(info.ID.String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.ID == same)
	if _, err := buildid.ReadFile(os.DevNull); err != nil && !errors.Is(err, buildid.ErrFormat) {
		fmt.Println("a device is not opened")
	}
	// Output:
	// true
	// a device is not opened
}
