package perfring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Waiter waits for something to do: records to read, the end of what is
// recorded, or the end of the recording.
//
// It waits in the poller of the Go runtime, for one epoll that has the processes and an epoll of
// all sources. A goroutine that waits in a system call of its own costs far more: until the
// runtime takes its processor away, after 10 ms, the runtime's monitor looks at it, first every
// 20 µs. For the same reason no system call here announces itself to the runtime: none of them waits.
// The end of a wait is a timer of the kernel's in that epoll. One of the runtime's wakes the monitor
// as well, and a second thread, in case there is more to do.
//
// A perf event says once that it has something, to the first who asks (perf_poll in
// kernel/events/core.c), and the poller asks while nobody waits here. So before it waits a
// waiter looks into the rings themselves: see [Ring.IsDue].
type Waiter struct {
	ctx      context.Context
	unbind   func() bool // from the context
	pending  func() bool
	file     *os.File // the epoll
	conn     syscall.RawConn
	epoll    int
	sources  int  // an epoll of the sources
	timer    int  // that ends a wait
	watching bool // there were processes
	left     int  // processes that have not ended
	blind    bool // a ring's own event has ended, so it wakes nobody
	breath   *time.Timer
}

const (
	// Glance is how long the rings of ended events are left alone.
	Glance = 20 * time.Millisecond
	// LongestWait is how long records wait at most before they are handled. It bounds
	// what is pending between rounds while little happens.
	LongestWait = 250 * time.Millisecond
	// Breath is how long a recording waits for more of what woke it. A process that
	// starts has several mappings; and it bounds the rounds in a second. It is
	// also how long a process must live for a file to be found that only it can
	// reach and that the kernel does not identify.
	Breath = 10 * time.Millisecond
)

// Forever is a time after which nobody looks.
const Forever time.Duration = -1

// NewWaiter returns a waiter that wakes when one of the sources (descriptors) has something to
// read, and ends with ctx, or when none of the processes (pidfds)
// is left, if there were any. pending reports whether rings of perf events among the sources, or in
// epolls among them, are due: nil where there are none. The caller closes it.
func NewWaiter(ctx context.Context, sources, processes []int, pending func() bool) (*Waiter, error) {
	if pending == nil {
		pending = func() bool { return false }
	}
	w := &Waiter{ctx: ctx, pending: pending, epoll: -1, sources: -1, timer: -1, watching: len(processes) > 0, left: len(processes)}
	if err := w.open(sources, processes); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for events: %w", err), w.closeAll())
	}
	w.breath = time.NewTimer(0)
	w.unbind = context.AfterFunc(ctx, func() {
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // who waits returns
	})
	return w, nil
}

func (w *Waiter) open(sources, processes []int) error {
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.sources, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, fd := range sources {
		if err := control(w.sources, unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	for _, fd := range processes {
		if err := control(w.epoll, unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	if err := control(w.epoll, unix.EPOLL_CTL_ADD, w.sources, 0); err != nil {
		return err
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	if err := control(w.epoll, unix.EPOLL_CTL_ADD, w.timer, unix.EPOLLIN); err != nil {
		return err
	}
	if err := unix.SetNonblock(w.epoll, true); err != nil { // or os.NewFile has no use for the poller
		return err
	}
	w.file = os.NewFile(uintptr(w.epoll), "epoll")
	w.conn, err = w.file.SyscallConn()
	return err
}

// Wait returns when there may be something to read, and after a time in any case, unless that is Forever.
// After something came it takes a breath, as more may come. It reports whether the recording is over.
func (w *Waiter) Wait(most, breath time.Duration) (over bool, err error) {
	came, err := w.await(most)
	if err != nil {
		return false, fmt.Errorf("waiting for events: %w", err)
	}
	if came && breath > 0 && !w.isOver() {
		w.breath.Reset(breath)
		select {
		case <-w.breath.C:
		case <-w.ctx.Done():
		}
	}
	return w.isOver(), nil
}

func (w *Waiter) isOver() bool { return w.ctx.Err() != nil || w.watching && w.left == 0 }

// await returns when a source has something, after a time, and when the recording is over. It reports
// whether it was a source. Until the next call the sources wake nobody.
func (w *Waiter) await(most time.Duration) (came bool, err error) {
	if w.blind && (most == Forever || most > Glance) {
		most = Glance
	}
	if err := w.setTimer(most); err != nil {
		return false, err
	}
	if err := control(w.epoll, unix.EPOLL_CTL_MOD, w.sources, unix.EPOLLIN); err != nil {
		return false, err
	}
	// The poller keeps what it hears from here on, whether somebody waits already or only looks.
	late := false
	waitErr := w.conn.Read(func(uintptr) bool {
		came, late, err = w.look()
		return came || late || err != nil || w.isOver()
	})
	if err == nil && !errors.Is(waitErr, os.ErrDeadlineExceeded) {
		err = waitErr
	}
	if err == nil {
		err = control(w.epoll, unix.EPOLL_CTL_MOD, w.sources, 0)
	}
	return came, err
}

// setTimer has the wait end after a time, unless that is Forever. An end from before is forgotten.
func (w *Waiter) setTimer(most time.Duration) error {
	var end unix.ItimerSpec
	if most != Forever {
		end.Value = unix.NsecToTimespec(max(1, most.Nanoseconds())) // 0 is for ever
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(&end)), 0, 0, 0)
	return errorOf(errno)
}

// look reports whether a source has something, and whether the time is over. It forgets processes and
// sources that have ended.
func (w *Waiter) look() (came, late bool, err error) {
	var events [16]unix.EpollEvent
	n, err := ready(w.epoll, events[:])
	if err != nil {
		return false, false, err
	}
	came = w.pending()
	for _, e := range events[:n] {
		switch int(e.Fd) {
		case w.sources:
			came = true
			continue
		case w.timer:
			late = true
			continue
		}
		w.left--
		if err := control(w.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), 0); err != nil {
			return false, false, err
		}
	}
	if !came {
		return false, late, nil
	}
	return true, late, w.dropEnded()
}

// dropEnded forgets sources that have ended: they have something for ever.
func (w *Waiter) dropEnded() error {
	var events [64]unix.EpollEvent
	for {
		n, err := ready(w.sources, events[:])
		if err != nil {
			return err
		}
		ended := 0
		for _, e := range events[:n] {
			if e.Events&(unix.EPOLLHUP|unix.EPOLLERR) == 0 {
				continue
			}
			ended++
			w.blind = true
			if err := control(w.sources, unix.EPOLL_CTL_DEL, int(e.Fd), 0); err != nil {
				return err
			}
		}
		if n < len(events) || ended == 0 {
			return nil
		}
	}
}

// ready is epoll_wait(2) that does not wait.
func ready(epoll int, events []unix.EpollEvent) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errorOf(errno)
		}
	}
}

// control is epoll_ctl(2).
func control(epoll, op, fd int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return errorOf(errno)
}

func errorOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// Close ends the waiter. The sources and processes stay open.
func (w *Waiter) Close() error {
	w.unbind()
	return w.closeAll()
}

func (w *Waiter) closeAll() error {
	var errs []error
	if w.file != nil {
		errs = append(errs, w.file.Close())
	} else if w.epoll >= 0 {
		errs = append(errs, unix.Close(w.epoll))
	}
	for _, fd := range []int{w.sources, w.timer} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
