package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A contender goes through all files once.
type contender struct {
	name string
	run  func() (time.Duration, error)
}

// prepare writes and builds what is needed. The floor is the first contender.
func prepare(work, dir string, files []string) ([]contender, error) {
	list := filepath.Join(work, "list")
	if err := os.WriteFile(list, []byte(strings.Join(files, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	floor, reader, hallmark := filepath.Join(work, "floor"), filepath.Join(work, "reader"), filepath.Join(work, "hallmark")
	for _, build := range [][]string{
		{"cc", "-O2", "-o", floor, "id/floor/floor.c"},
		{"go", "build", "-o", reader, "./id/reader"},
		{"go", "build", "-C", "..", "-o", hallmark, "./cmd/hallmark"},
	} {
		if out, err := exec.Command(build[0], build[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(build, " "), err, out)
		}
	}
	contenders := []contender{
		{"open + pread + close in C (floor)", passes(floor, list)},
		{"`buildid.ReadFile`", passes(reader, list, "buildid")},
		{"Go `debug/elf`", passes(reader, list, "debug/elf")},
		{"`hallmark id FILE…`", command(files, hallmark, "id")},
	}
	for _, line := range []string{"eu-readelf -n", "readelf -n", "file"} {
		args := strings.Fields(line)
		if _, err := exec.LookPath(args[0]); err != nil {
			fmt.Printf("%s is not installed and left out\n", args[0])
			continue
		}
		contenders = append(contenders, contender{"`" + line + " FILE…`", command(files, args...)})
	}
	return append(contenders,
		contender{"`hallmark id -r " + dir + "`, with all other files", command(nil, hallmark, "id", "-r", dir)},
		contender{"`find " + dir + " -type f`, opens no file", command(nil, "find", dir, "-type", "f")}), nil
}

// passes runs a program that goes through the list several times and prints the
// nanoseconds that each took, without its own start. The fastest counts.
func passes(program, list string, args ...string) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		out, err := exec.Command(program, append([]string{list, "7"}, args...)...).Output()
		if err != nil {
			return 0, err
		}
		var times []time.Duration
		for _, line := range strings.Fields(string(out)) {
			ns, err := strconv.ParseInt(line, 10, 64)
			if err != nil {
				return 0, err
			}
			times = append(times, time.Duration(ns))
		}
		return slices.Min(times), nil
	}
}

// command times a program, its start included, with the files as its arguments in
// as few calls as the kernel's limit on them allows. What it thinks of odd files
// does not matter.
func command(files []string, args ...string) func() (time.Duration, error) {
	const perCall = 10_000
	calls := slices.Collect(slices.Chunk(files, perCall))
	if len(calls) == 0 {
		calls = [][]string{nil}
	}
	return func() (time.Duration, error) {
		start := time.Now()
		for _, files := range calls {
			err := exec.Command(args[0], slices.Concat(args[1:], files)...).Run()
			if _, exited := err.(*exec.ExitError); err != nil && !exited {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}
