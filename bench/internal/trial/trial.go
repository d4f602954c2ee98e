// Package trial is what the commands that measure have in common.
package trial

import (
	"flag"
	"fmt"
	"os"
)

// Main parses the flags and calls run with a directory, which is removed afterwards. It ends the
// process with exit status 1 if run fails, with the error behind the name of the command.
func Main(name string, run func(dir string) error) {
	flag.Parse()
	if err := inDir(name, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func inDir(name string, run func(dir string) error) error {
	dir, err := os.MkdirTemp("", "bench-"+name)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return run(dir)
}
