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
	if w, err = NewWaiter(ctx, []int{source}, processes, nil); err != nil {
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
func wait(t *testing.T, w *Waiter, most, breath time.Duration, over bool) {
	t.Helper()
	got := make(chan bool, 1)
	go func() {
		isOver, err := w.Wait(most, breath)
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
		wait(t, w, Forever, time.Millisecond, false)
		wait(t, w, Forever, 0, false) // it still has something
		take(t, source)
		wait(t, w, time.Millisecond, time.Hour, false) // it has nothing: this is the time, without a breath
		wait(t, w, 0, time.Hour, false)
		time.AfterFunc(time.Millisecond, func() { put(t, source) })
		wait(t, w, Forever, 0, false)
		take(t, source)
	}
}

// TestWaiterBreathes wants what comes during a breath to wake nobody, and to be there afterwards.
func TestWaiterBreathes(t *testing.T) {
	w, source := newWaiter(t, t.Context())
	put(t, source)
	began := time.Now()
	for range 5 {
		time.AfterFunc(2*time.Millisecond, func() { put(t, source) })
		wait(t, w, Forever, 20*time.Millisecond, false)
	}
	if took := time.Since(began); took < 100*time.Millisecond { // never more than there is time for
		t.Errorf("five breaths of 20 ms took %v", took)
	}
}

// TestWaiterEnds ends a waiter before it waits, while it waits, and while it takes a breath.
func TestWaiterEnds(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		w, _ := newWaiter(t, ctx)
		go cancel()
		wait(t, w, Forever, 0, true)
		wait(t, w, Forever, 0, true)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, source := newWaiter(t, ctx)
	put(t, source)
	time.AfterFunc(5*time.Millisecond, cancel)
	wait(t, w, Forever, time.Hour, true)
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
		wait(t, w, time.Millisecond, 0, false)
		_ = c.Process.Kill()
		_ = c.Wait()
		wait(t, w, 50*time.Millisecond, 0, i == 1)
	}
}

// TestWaiterLooksWhereARingHasEnded has the other side of a source end: it has something for ever, and says nothing.
func TestWaiterLooksWhereARingHasEnded(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	w, err := NewWaiter(t.Context(), []int{ends[0]}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	unix.Close(ends[1])
	wait(t, w, Forever, 0, false)
	began := time.Now()
	for range 3 {
		wait(t, w, Forever, time.Hour, false)
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
	ring, err := NewRing(fd, 4, &attr)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := NewWaiter(ctx, []int{fd}, nil, ring.IsDue)
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
			over, err := w.Wait(Forever, 0)
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

// TestRingIsDue compares what a ring says with poll(2), which is asked after each record, for watermarks that few and
// many records pass.
func TestRingIsDue(t *testing.T) {
	runtime.LockOSThread() // whose mappings are recorded
	defer runtime.UnlockOSThread()
	for _, watermark := range []uint32{1, 100, 1000, 4096, 1 << 20} {
		attr := NewPlan(99).Changes
		attr.Bits &^= unix.PerfBitInherit
		attr.Wakeup = watermark
		fd, err := OpenEvent(&attr, 0, -1)
		testenv.Need(t, err == nil, "perf events (see hallmark doctor)")
		defer unix.Close(fd)
		ring, err := NewRing(fd, 4, &attr)
		if err != nil {
			t.Fatal(err)
		}
		defer ring.Close()
		if err := Enable([]int{fd}); err != nil {
			t.Fatal(err)
		}
		woken := false
		for i := range 600 {
			mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Munmap(mem)
			polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(polls, 0); err != nil {
				t.Fatal(err)
			}
			woken = woken || polls[0].Revents&unix.POLLIN != 0
			if got := ring.IsDue(); got != woken {
				t.Fatalf("watermark %d, record %d: the ring is due: %v, poll(2) has said so: %v", watermark, i, got, woken)
			}
			if i%7 == 0 && woken || i%50 == 0 {
				ring.Drain(nil, func([]byte) {})
				woken = false
			}
		}
	}
}
