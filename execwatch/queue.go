package execwatch

import (
	"slices"
	"time"

	"hallmark/internal/perfring"
)

// watchQueue puts events into the order of their time, and holds each until it is complete:
// until identities are known or cannot be, and until it is known what a process has run in
// all. Nothing waits for longer than that may take.
type watchQueue struct {
	events []*heldEvent // in the order of time
	room   []*heldEvent // the longest memory that events had, from its begin; empty
	clock  perfring.WallClock
	claims execClaims
}

// heldEvent is an event that may not be complete yet.
type heldEvent struct {
	*Event
	time    uint64  // ns, CLOCK_MONOTONIC
	due     uint64  // when it is reported as it is
	missing missing // nil for nothing
}

// missing is what an event may still lack.
type missing interface {
	// complete reports whether all is known that will be.
	complete() bool
	// finish fills in what is known, when all that happened before was reported.
	finish()
}

// reusable is what knows more of an event than others need once it was reported.
type reusable interface {
	// reuse has the memory of the event be used again.
	reuse()
}

const (
	// slack is longer than it takes an event to get from where its time is taken into a
	// ring, so that what comes later is later.
	slack = time.Millisecond
	// maxQueued bounds the memory of what is held. Beyond it events are reported as they are.
	maxQueued = 1 << 14
)

func newWatchQueue() *watchQueue { return &watchQueue{clock: perfring.NewWallClock()} }

// add puts an event into its place, which is nearly always the last one. A machine that is busy brings an event
// late: the time to look at its files begins here.
func (q *watchQueue) add(e *heldEvent, patience time.Duration) {
	e.Time, e.due = q.clock.At(e.time), max(e.time, perfring.Monotonic())+uint64(patience)
	if n := len(q.events); n == cap(q.events) && 2*n <= cap(q.room) {
		q.events = append(q.room, q.events...)
	}
	i := len(q.events)
	for i > 0 && q.events[i-1].time > e.time {
		i--
	}
	q.events = slices.Insert(q.events, i, e)
	if cap(q.events) > cap(q.room) { // it has just got this memory
		q.room = q.events[:0]
	}
}

// next takes out the oldest event, if it is from before a time and complete.
func (q *watchQueue) next(before uint64) *heldEvent {
	if len(q.events) == 0 {
		return nil
	}
	e := q.events[0]
	full := len(q.events) > maxQueued
	if !full && (e.time >= before || e.missing != nil && !e.missing.complete() && perfring.Monotonic() < e.due) {
		return nil
	}
	q.events[0] = nil
	q.events = q.events[1:]
	if e.missing != nil {
		e.missing.finish()
	}
	return e
}

func (q *watchQueue) empty() bool { return len(q.events) == 0 }
