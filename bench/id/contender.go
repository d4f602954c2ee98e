package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A contender goes through some files once.
type contender struct {
	name  string
	files int
	run   func() (cost, error)
}

// A cost is the time that something took by the clock and on all processors.
type cost struct{ wall, cpu time.Duration }

// prepare writes and builds what is needed, for files with a note and without. The floor is
// the first contender.
func prepare(work, dir string, noted, others []string) ([]contender, error) {
	list, otherList := filepath.Join(work, "list"), filepath.Join(work, "others")
	for list, files := range map[string][]string{list: noted, otherList: others} {
		if err := os.WriteFile(list, []byte(strings.Join(files, "\n")+"\n"), 0o644); err != nil {
			return nil, err
		}
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
	n := len(noted)
	contenders := []contender{
		{"open + pread + close in C (floor)", n, passes(floor, list)},
		{"`buildid.ReadFile`", n, passes(reader, list, "buildid")},
		{"Go `debug/elf`", n, passes(reader, list, "debug/elf")},
		{"`hallmark id FILE…`", n, command(noted, hallmark, "id")},
	}
	for _, line := range []string{"eu-readelf -n", "readelf -n", "file"} {
		args := strings.Fields(line)
		if _, err := exec.LookPath(args[0]); err != nil {
			fmt.Printf("%s is not installed and left out\n", args[0])
			continue
		}
		contenders = append(contenders, contender{"`" + line + " FILE…`", n, command(noted, args...)})
	}
	if len(others) > 0 {
		contenders = append(contenders, contender{fmt.Sprintf("`buildid.ReadFile`, the %d files without a note", len(others)), len(others), passes(reader, otherList, "buildid")})
	}
	all := n + len(others)
	return append(contenders,
		contender{"`hallmark id -r " + dir + "`, with all other files", all, command(nil, hallmark, "id", "-r", dir)},
		contender{"`find " + dir + " -type f`, opens no file", all, command(nil, "find", dir, "-type", "f")}), nil
}

// passes runs a program that goes through the list several times and prints what
// each pass cost, without its own start. The cheapest counts: the others were
// disturbed by something else.
func passes(program, list string, args ...string) func() (cost, error) {
	return func() (cost, error) {
		out, err := exec.Command(program, append([]string{list, "15"}, args...)...).Output()
		if err != nil {
			return cost{}, err
		}
		best := cost{math.MaxInt64, math.MaxInt64}
		for line := range strings.Lines(string(out)) {
			var c cost
			if _, err := fmt.Sscan(line, &c.wall, &c.cpu); err != nil {
				return cost{}, fmt.Errorf("%s printed %q: %w", program, line, err)
			}
			best = cost{min(best.wall, c.wall), min(best.cpu, c.cpu)}
		}
		return best, nil
	}
}

// command times a program, its start included, with the files as its arguments in
// as few calls as the kernel's limit on them allows. What it thinks of odd files
// does not matter.
func command(files []string, args ...string) func() (cost, error) {
	const perCall = 10_000
	calls := slices.Collect(slices.Chunk(files, perCall))
	if len(calls) == 0 {
		calls = [][]string{nil}
	}
	return func() (c cost, err error) {
		for _, files := range calls {
			cmd := exec.Command(args[0], slices.Concat(args[1:], files)...)
			start := time.Now()
			err := cmd.Run()
			if _, exited := err.(*exec.ExitError); err != nil && !exited {
				return c, err
			}
			c.wall += time.Since(start)
			c.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		return c, nil
	}
}
