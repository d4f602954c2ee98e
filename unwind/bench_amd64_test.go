package unwind_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// copied is a stack as a sample brings it.
type copied struct {
	state unwind.State
	stack unwind.Stack
	space mappings
}

// mappings is a space that answers without asking anybody.
type mappings []unwind.Mapping

// At returns the mapping that a lies in.
func (m mappings) At(a addr.Abs) (unwind.Mapping, bool) {
	for i := range m {
		if a < m[i].End {
			return m[i], a >= m[i].Start
		}
	}
	return unwind.Mapping{}, false
}

// copyStacks copies the stacks of all threads of a stopped process.
func copyStacks(b *testing.B, pid int) []copied {
	b.Helper()
	space := newLiveSpace(b, pid, map[string]*unwind.Table{})
	var known mappings
	for _, v := range space.vmas {
		if m, _ := space.At(v.Start); m.Content != unwind.Data {
			known = append(known, m)
		}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Close()
	var all []copied
	for _, tid := range threads(b, pid) {
		c := copied{state: registersOf(b, tid), space: known}
		sp, _ := c.state.Get(unwind.RSP)
		c.stack = unwind.Stack{Base: addr.Abs(sp), Bytes: make([]byte, 16<<10)}
		n, _ := mem.ReadAt(c.stack.Bytes, int64(sp)) // to the end of the stack
		c.stack.Bytes = c.stack.Bytes[:n]
		all = append(all, c)
	}
	return all
}

// BenchmarkWalkCopies walks copied stacks of a program that keeps no frame pointers.
func BenchmarkWalkCopies(b *testing.B) {
	testenv.Root(b)
	file := filepath.Join(b.TempDir(), "live")
	if msg, err := exec.Command(testenv.Tool(b, "gcc"), "-O2", "-fomit-frame-pointer", "-pthread", "-o", file, "testdata/live.c").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, msg)
	}
	cmd := exec.Command(file)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var all []copied
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		stop(b, cmd.Process.Pid)
		all = append(all, copyStacks(b, cmd.Process.Pid)...)
		resume(b, cmd.Process.Pid)
	}
	w := unwind.Walker{Machine: unwind.X86_64, Max: 500}
	frames, complete, walks := 0, 0, 0
	count := func(unwind.Frame) bool { frames++; return true }
	var s unwind.State
	before := processorTime(b)
	b.ReportAllocs()
	for b.Loop() {
		for i := range all {
			w.Memory, w.Space, s = &all[i].stack, all[i].space, all[i].state
			walks++
			if w.Walk(&s, count) == unwind.Complete {
				complete++
			}
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(frames), "cpu-ns/frame")
	b.ReportMetric(float64(frames)/float64(walks), "frames/stack")
	b.ReportMetric(100*float64(complete)/float64(walks), "%complete")
}

// processorTime returns what this process has used, which other load does not change much.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
