package perfring

import (
	"context"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// newWaiter returns a waiter for an eventfd and processes.
func newWaiter(t *testing.T, ctx context.Context, processes ...int) (w *Waiter, source int) {
	t.Helper()
	source, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = NewWaiter(ctx, []int{source}, processes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		unix.Close(source)
	})
	return w, source
}

// wait waits, and wants to know whether the recording is over.
func wait(t *testing.T, w *Waiter, most time.Duration, over bool) {
	t.Helper()
	got := make(chan bool, 1)
	go func() {
		isOver, err := w.Wait(most)
		if err != nil {
			t.Error(err)
		}
		got <- isOver
	}()
	select {
	case isOver := <-got:
		if isOver != over {
			t.Errorf("over: %v, want %v", isOver, over)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("it still waits")
	}
}

func put(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
}

// TestWaiterWakes has a source wake a waiter again and again, whether it comes before or while somebody waits.
func TestWaiterWakes(t *testing.T) {
	w, source := newWaiter(t, t.Context())
	for range 20 {
		put(t, source)
		wait(t, w, Forever, false)
		wait(t, w, Forever, false) // it still has something
		take(t, source)
		wait(t, w, time.Millisecond, false) // it has nothing: this is the time
		wait(t, w, 0, false)
		time.AfterFunc(time.Millisecond, func() { put(t, source) })
		wait(t, w, Forever, false)
		take(t, source)
	}
}

// TestWaiterEnds ends a waiter before it waits, and while it waits.
func TestWaiterEnds(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		w, _ := newWaiter(t, ctx)
		go cancel()
		wait(t, w, Forever, true)
		wait(t, w, Forever, true)
	}
}

// TestWaiterKnowsProcesses wants an end when the last of two processes has ended.
func TestWaiterKnowsProcesses(t *testing.T) {
	var pidfds []int
	var all []*exec.Cmd
	for range 2 {
		c := exec.Command(testenv.Tool(t, "sleep"), "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(c.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		pidfds, all = append(pidfds, fd), append(all, c)
	}
	w, _ := newWaiter(t, t.Context(), pidfds...)
	for i, c := range all {
		wait(t, w, time.Millisecond, false)
		_ = c.Process.Kill()
		_ = c.Wait()
		wait(t, w, 50*time.Millisecond, i == 1)
	}
}

// TestWaiterLooksWhereARingHasEnded has the other side of a source end: it has something for ever, and says nothing.
func TestWaiterLooksWhereARingHasEnded(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	w, err := NewWaiter(t.Context(), []int{ends[0]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	unix.Close(ends[1])
	wait(t, w, Forever, false)
	began := time.Now()
	for range 3 {
		wait(t, w, Forever, false)
	}
	if took := time.Since(began); took < 3*Glance {
		t.Errorf("three glances at a ring that has ended took %v", took)
	}
}

// TestWaiterHearsPerfEvents waits for records of a perf event, each time for ever: an event says once that it has something.
func TestWaiterHearsPerfEvents(t *testing.T) {
	attr := NewPlan(99).Changes
	attr.Bits &^= unix.PerfBitInherit
	fd, err := OpenEvent(&attr, 0, -1)
	testenv.Need(t, err == nil, "perf events (see hallmark doctor)")
	defer unix.Close(fd)
	runtime.LockOSThread() // whose mappings are recorded
	defer runtime.UnlockOSThread()
	ring, err := NewRing(fd, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := NewWaiter(ctx, []int{fd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := Enable([]int{fd}); err != nil {
		t.Fatal(err)
	}
	heard := make(chan bool)
	go func() {
		defer close(heard)
		for {
			over, err := w.Wait(Forever)
			if over || err != nil {
				return
			}
			n := 0
			ring.Drain(nil, func([]byte) { n++ })
			if n > 0 {
				heard <- true
			}
		}
	}()
	defer func() { cancel(); <-heard }()
	for i := range 300 {
		time.Sleep(time.Duration(i%5) * time.Millisecond) // it waits already, or is about to
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Munmap(mem)
		select {
		case <-heard:
		case <-time.After(testenv.Patience):
			t.Fatal("it still waits")
		}
	}
}
