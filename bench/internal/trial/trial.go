// Package trial is what the commands that measure have in common.
package trial

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
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

// Rounds defines a flag for how many rounds are measured, of which the medians are shown: one at
// least.
func Rounds(name string, n int, usage string) *int {
	flag.Func(name, fmt.Sprintf("%s (default %d)", usage, n), func(s string) error {
		got, err := strconv.Atoi(s)
		if err != nil || got < 1 {
			return errors.New("a number of rounds is at least 1")
		}
		n = got
		return nil
	})
	return &n
}
