package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

var updateSyscalls = flag.Bool("update-syscalls", false, "rewrite the golden of the system calls that commands make")

// counted are the system calls that a command chooses to make; the others are the Go runtime's, above all.
var counted = strings.Fields("openat openat2 read pread64 write close fstat newfstatat statx fstatfs lseek readlinkat getdents64 ioctl fcntl bpf")

// syscallsOf returns how many of these a command makes.
func syscallsOf(t *testing.T, args ...string) map[string]int {
	t.Helper()
	summary := filepath.Join(t.TempDir(), "summary")
	cmd := exec.Command(testenv.Tool(t, "strace"), append([]string{"-f", "-c", "-o", summary, "hallmark"}, args...)...)
	// With several processors two goroutines may look at one new file at a time: a few calls more, by chance.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &stderr)
	}
	text, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // "% time", seconds, µs a call, calls, errors unless there are none, name
		if len(f) < 5 || !slices.Contains(counted, f[len(f)-1]) {
			continue
		}
		calls, err := strconv.Atoi(f[3])
		if err != nil {
			t.Fatalf("strace prints %q", line)
		}
		n[f[len(f)-1]] = calls
	}
	return n
}

// TestSystemCalls compares the system calls that a command makes for each file or process that is added with a
// golden, so that a change that costs shows. Those that a command makes in any case depend on the machine.
func TestSystemCalls(t *testing.T) {
	testenv.Root(t)
	self, err := procmap.OpenOptions(os.Getpid(), procmap.Options{Method: procmap.Query})
	testenv.Need(t, err == nil, fmt.Sprint("PROCMAP_QUERY (Linux 6.11), without which the calls are others: ", err))
	self.Close()
	recording.Lock()
	defer recording.Unlock()
	const few, many = 10, 60
	busy := proctest.BuildC(t)
	var files, pids []string
	dir := t.TempDir()
	for i := range many {
		files = append(files, filepath.Join(dir, strconv.Itoa(i)))
		proctest.CopyTo(t, busy, files[i])
		pid := proctest.Start(t, testenv.Tool(t, "sleep"), "1000")
		proctest.AwaitProgram(t, pid, sleepOf(t))
		pids = append(pids, strconv.Itoa(pid))
	}
	var got strings.Builder
	for _, c := range []struct {
		verb string
		each []string
	}{
		{"id FILE", files},
		{"id PID", pids},
		{"ps PID", pids},
		{"ps --libs PID", pids},
	} {
		args := strings.Fields(c.verb)
		args = args[:len(args)-1]
		a := syscallsOf(t, append(slices.Clone(args), c.each[:few]...)...)
		b := syscallsOf(t, append(args, c.each...)...)
		fmt.Fprintf(&got, "%-14s", c.verb)
		for _, name := range slices.Sorted(maps.Keys(b)) {
			if each := float64(b[name]-a[name]) / (many - few); each >= leastCounted {
				fmt.Fprintf(&got, "  %s %.1f", name, each)
			}
		}
		fmt.Fprintln(&got)
	}
	golden := filepath.Join("testdata", "syscalls.txt")
	if *updateSyscalls {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !areNear(strings.Fields(got.String()), strings.Fields(string(want))) {
		t.Errorf("for each file or process there are\n%s%s has\n%s(go test -run '^%s$' -update-syscalls rewrites it)", &got, golden, want, t.Name())
	}
}

// leastCounted is how many calls there must be at least: fewer are by chance, such as reading a list of processes.
const leastCounted = 0.3

// areNear reports whether two lists of words are the same, and the numbers among them nearly so.
func areNear(got, want []string) bool {
	return slices.EqualFunc(got, want, func(a, b string) bool {
		x, err1 := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		if err1 != nil || err2 != nil {
			return a == b
		}
		return math.Abs(x-y) <= leastCounted
	})
}

// sleepOf returns the path of sleep without links.
func sleepOf(t *testing.T) string {
	path, err := filepath.EvalSymlinks(testenv.Tool(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
