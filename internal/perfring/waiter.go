package perfring

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Waiter waits for something to do: records to read, the end of what is
// recorded, or the end of the recording. It blocks in one poll(2), which costs
// an idle machine less than half of what a ticker of the Go runtime does.
type Waiter struct {
	over   atomic.Bool   // the context is done
	wake   int           // an eventfd, readable when over
	unbind func()        // from the context
	polls  []unix.PollFd // wake, then the sources, then the processes
	first  int           // index of the first process in polls
	blind  bool          // a ring\'s own event has ended, so it wakes nobody
}

const (
	// Glance is how long the rings of ended events are left alone.
	Glance = 20 * time.Millisecond
	// LongestWait is how long records wait at most before they are handled. It bounds
	// what is pending between rounds while little happens.
	LongestWait = 250 * time.Millisecond
	// breath is how long a round waits for more of what woke it. A process that
	// starts has several mappings; and it bounds the rounds in a second. It is
	// also how long a process must live for a file to be found that only it can
	// reach and that the kernel does not identify.
	breath = 10 * time.Millisecond
)

// NewWaiter returns a waiter that wakes when one of the sources has something to
// read, and ends with ctx, or when none of the processes
// is left, if there were any. The caller closes it.
func NewWaiter(ctx context.Context, sources, processes []int) (*Waiter, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &Waiter{wake: wake}
	w.polls = append(w.polls, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	for _, fd := range sources {
		w.polls = append(w.polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	w.first = len(w.polls)
	for _, fd := range processes {
		w.polls = append(w.polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		w.over.Store(true)
		// A counter that is full is readable as well.
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	w.unbind = func() {
		if !stop() {
			<-fired // or it would write into whatever gets the descriptor next
		}
	}
	return w, nil
}

// Forever is a time after which nobody looks.
const Forever time.Duration = -1

// Wait returns when there may be records to read, and after a time in any case, unless that is Forever.
// It reports whether the recording is over.
func (w *Waiter) Wait(most time.Duration) (over bool, err error) {
	n, err := unix.Poll(w.polls, w.timeout(most))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("waiting for events: %w", err)
	}
	if w.over.Load() || w.ended() {
		return true, nil
	}
	if n != 0 { // more may come of what woke us
		pause := unix.NsecToTimespec(int64(breath))
		_ = unix.Nanosleep(&pause, nil) // a signal may cut it short
	}
	return false, nil
}

// timeout returns after how many milliseconds to look without being woken, at most most.
func (w *Waiter) timeout(most time.Duration) int {
	switch {
	case w.blind && (most == Forever || most > Glance):
		return int(Glance.Milliseconds())
	case most == Forever:
		return -1
	}
	return int((most + time.Millisecond - 1).Milliseconds())
}

// ended notes what will not come back, and reports whether all processes have
// ended. poll passes over negative descriptors.
func (w *Waiter) ended() bool {
	left := 0
	for i := range w.polls {
		p := &w.polls[i]
		process := i >= w.first
		if p.Revents&unix.POLLHUP != 0 && !process {
			w.blind = true
		}
		if p.Revents&unix.POLLHUP != 0 || process && p.Revents&unix.POLLIN != 0 {
			p.Fd = -1
		}
		if process && p.Fd >= 0 {
			left++
		}
	}
	return w.first < len(w.polls) && left == 0
}

// Close ends the waiter. The sources and processes stay open.
func (w *Waiter) Close() error {
	w.unbind()
	return unix.Close(w.wake)
}

// WaitFor returns when there may be something to read, and after a time in any case, in
// ms. It reports whether the recording is over.
func (w *Waiter) WaitFor(timeout int, breath time.Duration) (over bool, err error) {
	n, err := unix.Poll(w.polls, timeout)
	if err != nil && err != unix.EINTR {
		return false, err
	}
	if w.over.Load() || w.ended() {
		return true, nil
	}
	if n > 0 && breath > 0 {
		pause := unix.NsecToTimespec(int64(breath))
		_ = unix.Nanosleep(&pause, nil) // a signal may cut it short
	}
	return false, nil
}
