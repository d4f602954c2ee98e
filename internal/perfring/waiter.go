package perfring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Waiter waits for something to do: records to read, the end of what is
// recorded, or the end of the recording.
//
// It waits in the poller of the Go runtime, for one epoll that has a timer, the processes, and
// an epoll of all sources. A goroutine that waits in a system call of its own costs far more: until
// the runtime takes its processor away, after 10 ms, the runtime's monitor looks at it, first every
// 20 µs. For the same reason no system call here announces itself to the runtime: none of them waits.
type Waiter struct {
	over     atomic.Bool // the context is done
	unbind   func() bool // from the context
	file     *os.File    // the epoll
	conn     syscall.RawConn
	epoll    int
	sources  int // an epoll of the sources
	timer    int // a timerfd
	watching bool
	left     int  // processes that have not ended
	blind    bool // a ring's own event has ended, so it wakes nobody
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

// NewWaiter returns a waiter that wakes when one of the sources has something to
// read, and ends with ctx, or when none of the processes
// is left, if there were any. The caller closes it.
func NewWaiter(ctx context.Context, sources, processes []int) (*Waiter, error) {
	w := &Waiter{epoll: -1, sources: -1, timer: -1, watching: len(processes) > 0, left: len(processes)}
	if err := w.open(sources, processes); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for events: %w", err), w.closeAll())
	}
	w.unbind = context.AfterFunc(ctx, func() {
		w.over.Store(true)
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
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
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
	if err := control(w.epoll, unix.EPOLL_CTL_ADD, w.timer, unix.EPOLLIN); err != nil {
		return err
	}
	if err := control(w.epoll, unix.EPOLL_CTL_ADD, w.sources, 0); err != nil {
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
	if w.blind && (most == Forever || most > Glance) {
		most = Glance
	}
	if err := w.arm(most); err != nil {
		return false, fmt.Errorf("waiting for events: %w", err)
	}
	// Once the sources have something they are left alone until the next call.
	if err := control(w.epoll, unix.EPOLL_CTL_MOD, w.sources, unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
		return false, fmt.Errorf("waiting for events: %w", err)
	}
	came, err := w.await()
	if err == nil && came {
		if err = w.dropEnded(); err == nil && breath > 0 {
			if err = w.arm(breath); err == nil {
				_, err = w.await()
			}
		}
	}
	if err != nil {
		return false, fmt.Errorf("waiting for events: %w", err)
	}
	return w.isOver(), nil
}

func (w *Waiter) isOver() bool { return w.over.Load() || w.watching && w.left == 0 }

// await returns when the timer or a source has something, and when the recording is over. It reports
// whether it was a source.
func (w *Waiter) await() (came bool, err error) {
	wakes := false
	for !wakes && !w.isOver() && err == nil {
		readErr := w.conn.Read(func(uintptr) bool {
			came, wakes, err = w.look()
			return wakes || err != nil || w.isOver()
		})
		if readErr != nil && !errors.Is(readErr, os.ErrDeadlineExceeded) {
			return false, readErr
		}
	}
	return came, err
}

// look takes what the epoll has, and forgets processes that have ended.
func (w *Waiter) look() (came, wakes bool, err error) {
	var events [16]unix.EpollEvent
	n, err := ready(w.epoll, events[:])
	if err != nil {
		return false, false, err
	}
	for _, e := range events[:n] {
		switch int(e.Fd) {
		case w.sources:
			came, wakes = true, true
		case w.timer:
			wakes = true
		default:
			w.left--
			if err := control(w.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), 0); err != nil {
				return false, false, err
			}
		}
	}
	return came, wakes, nil
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

// arm has the timer wake after a time, or not at all for Forever. What it had before is gone.
func (w *Waiter) arm(after time.Duration) error {
	var spec unix.ItimerSpec
	if after != Forever {
		spec.Value = unix.NsecToTimespec(int64(max(after, 1))) // 0 would stop it
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errorOf(errno)
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
