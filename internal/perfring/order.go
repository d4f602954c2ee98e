package perfring

import (
	"slices"
	"unsafe"
)

// Sorter puts the records of several CPUs into the order of their time.
//
// Each ring is in order by itself. A record is written within one
// uninterrupted stretch after its time was taken, so what has a time before the
// previous round of draining has been drained by the end of this one: the rule
// by which perf flushes at FINISHED_ROUND.
type Sorter struct {
	// Most bounds the records that wait, in bytes; 0 for no bound.
	Most    int
	pending []timed
	held    int // bytes that pending takes
}

type timed struct {
	time uint64 // ns, CLOCK_MONOTONIC
	rec  []byte
}

// Add keeps rec until its turn has come. It reports false if there is no room for it.
func (s *Sorter) Add(time uint64, rec []byte) bool {
	n := sizeOf(rec)
	if s.Most > 0 && s.held+n > s.Most {
		return false
	}
	s.held += n
	s.pending = append(s.pending, timed{time, rec})
	return true
}

// sizeOf returns how many bytes a record takes that waits.
func sizeOf(rec []byte) int { return int(unsafe.Sizeof(timed{})) + cap(rec) }

// Pending reports whether records wait for their turn.
func (s *Sorter) Pending() bool { return len(s.pending) > 0 }

// Flush calls each for every record from before the time, oldest first; records
// of one time keep the order in which they were added.
func (s *Sorter) Flush(before uint64, each func(rec []byte)) {
	slices.SortStableFunc(s.pending, func(a, b timed) int {
		switch {
		case a.time < b.time:
			return -1
		case a.time > b.time:
			return 1
		}
		return 0
	})
	n, _ := slices.BinarySearchFunc(s.pending, before, func(e timed, t uint64) int {
		if e.time < t {
			return -1
		}
		return 1
	})
	for _, e := range s.pending[:n] {
		s.held -= sizeOf(e.rec)
		each(e.rec)
	}
	s.pending = slices.Delete(s.pending, 0, n)
}
