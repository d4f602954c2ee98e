//go:build amd64 || arm64

package unwind_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// TestOwnStacks compares the stacks of programs with what libgcc's unwinder says of them
// in these programs themselves, also where there is no debugger.
func TestOwnStacks(t *testing.T) {
	testenv.Root(t) // for /proc/PID/mem and ptrace
	for _, options := range []string{
		"-O0 -static-libgcc",
		"-O2 -fomit-frame-pointer -static-libgcc",
		"-O1 -fomit-frame-pointer -static",
		"-O2 -DSIGNED -static",
	} {
		t.Run(options, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "stacks")
			args := append(strings.Fields(options), "-pthread", "-o", file, "../internal/bpf/testdata/stacks.c")
			if msg, err := exec.Command(testenv.Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, msg)
			}
			tables := map[string]*unwind.Table{}
			for _, kind := range []string{"recursion", "qsort", "alloca", "aligned", "signal", "fault", "thread", "mixed"} {
				t.Run(kind, func(t *testing.T) { checkOwn(t, exec.Command(file, kind), tables) })
			}
		})
	}
}

// checkOwn starts a program that prints the stack of one of its threads and keeps it. The
// innermost function of it is somewhere in a loop, or still in the C library, printing.
func checkOwn(t *testing.T, cmd *exec.Cmd, tables map[string]*unwind.Table) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Scan()
	tid, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	var want []addr.Abs
	for _, word := range strings.Fields(lines.Text()) {
		at, err := strconv.ParseUint(word, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, addr.Abs(at))
	}
	pid := cmd.Process.Pid
	stop(t, pid)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	space, s := newLiveSpace(t, pid, tables), registersOf(t, tid)
	w := unwind.Walker{Machine: liveMachine, Memory: liveMemory{mem}, Space: space, Max: 500}
	var have []addr.Abs
	end := w.Walk(&s, func(f unwind.Frame) bool {
		have = append(have, f.At)
		return true
	})
	inner := len(have) - len(want) + 1
	if len(want) < 3 || inner < 1 || end != unwind.Complete || !slices.Equal(have[inner:], want[1:]) {
		t.Errorf("%v, end %d; want\n%v\nmappings:\n%s", have, end, want, space.text)
	}
}
