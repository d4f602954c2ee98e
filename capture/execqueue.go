package capture

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// watchQueue puts events into the order of their time, and holds each until it is complete:
// until identities are known or cannot be, and until it is known what a process has run in
// all. Nothing waits for longer than that may take.
type watchQueue struct {
	events []*heldEvent // in the order of time
	clock  wallClock
	claims execClaims
}

// heldEvent is an event that may not be complete yet.
type heldEvent struct {
	*WatchEvent
	time    uint64  // ns, CLOCK_MONOTONIC
	due     uint64  // when it is told as it is
	missing missing // nil for nothing
}

// missing is what an event may still lack.
type missing interface {
	// complete reports whether all is known that will be.
	complete() bool
	// finish fills in what is known, when all that happened before was told.
	finish()
}

const (
	// slack is longer than it takes an event to get from where its time is taken into a
	// ring, so that what comes later is later.
	slack = time.Millisecond
	// maxQueued bounds the memory of what is held. Beyond it events are told as they are.
	maxQueued = 1 << 14
)

func newWatchQueue() *watchQueue { return &watchQueue{clock: newWallClock()} }

// add puts an event into its place, which is nearly always the last one.
func (q *watchQueue) add(e *heldEvent, patience time.Duration) {
	e.Time, e.due = q.clock.at(e.time), e.time+uint64(patience)
	i := len(q.events)
	for i > 0 && q.events[i-1].time > e.time {
		i--
	}
	q.events = slices.Insert(q.events, i, e)
}

// next takes out the oldest event, if it is from before a time and complete.
func (q *watchQueue) next(before uint64) *WatchEvent {
	if len(q.events) == 0 {
		return nil
	}
	e := q.events[0]
	full := len(q.events) > maxQueued
	if !full && (e.time >= before || e.missing != nil && !e.missing.complete() && monotonic() < e.due) {
		return nil
	}
	q.events[0] = nil
	q.events = q.events[1:]
	if e.missing != nil {
		e.missing.finish()
	}
	return e.WatchEvent
}

func (q *watchQueue) empty() bool { return len(q.events) == 0 }

// forEvents returns when there may be something to read, and after a time in any case, in
// ms. It tells when it is over.
func (w *waiter) forEvents(timeout int, breath time.Duration) (over bool, err error) {
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

// wallClock turns times of the kernel's clocks into those of people. It is set once, so
// that the events of one process are as far apart as they were, and again when somebody
// has set the machine's clock.
type wallClock struct {
	monotonic, boot int64 // what CLOCK_REALTIME is ahead, ns
	checked         uint64
}

func newWallClock() wallClock {
	c := wallClock{checked: monotonic()}
	c.monotonic, c.boot = ahead(unix.CLOCK_MONOTONIC), ahead(unix.CLOCK_BOOTTIME)
	return c
}

// ahead returns what CLOCK_REALTIME is ahead of another clock, ns.
func ahead(clock int32) int64 {
	var real, other unix.Timespec
	if unix.ClockGettime(clock, &other) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &real) != nil {
		return 0 // never: both clocks are there
	}
	return real.Nano() - other.Nano()
}

// at returns the wall time of one of CLOCK_MONOTONIC.
func (c *wallClock) at(t uint64) time.Time {
	if t > c.checked+uint64(time.Second) {
		c.check(t)
	}
	return time.Unix(0, int64(t)+c.monotonic)
}

func (c *wallClock) check(now uint64) {
	c.checked = now
	if d := ahead(unix.CLOCK_MONOTONIC) - c.monotonic; d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.monotonic += d
	}
	if d := ahead(unix.CLOCK_BOOTTIME) - c.boot; d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.boot += d
	}
}

// sinceBoot turns a time of CLOCK_BOOTTIME into one of CLOCK_MONOTONIC, which stands still
// while the machine sleeps: 0 for one from before the last sleep.
func (c *wallClock) sinceBoot(t uint64) uint64 {
	return uint64(max(0, int64(t)+c.boot-c.monotonic))
}

// atBoot returns the wall time of one of CLOCK_BOOTTIME.
func (c *wallClock) atBoot(t uint64) time.Time { return time.Unix(0, int64(t)+c.boot) }
