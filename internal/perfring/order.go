package perfring

import (
	"slices"
	"unsafe"

	"hallmark/perfdata"
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
	time    uint64 // ns, CLOCK_MONOTONIC
	rec     []byte // nil for
	mapping *perfdata.Mmap2
}

// Add keeps rec until its turn has come. It reports false if there is no room for it.
func (s *Sorter) Add(time uint64, rec []byte) bool { return s.add(timed{time: time, rec: rec}) }

// AddMapping is Add for a mapping that was decoded, of which the sorter keeps a copy.
func (s *Sorter) AddMapping(m *perfdata.Mmap2) bool {
	kept := *m
	return s.add(timed{time: m.Time, mapping: &kept})
}

func (s *Sorter) add(t timed) bool {
	n := t.size()
	if s.Most > 0 && s.held+n > s.Most {
		return false
	}
	s.held += n
	s.pending = append(s.pending, t)
	return true
}

// size returns how many bytes a record takes that waits.
func (t *timed) size() int {
	n := int(unsafe.Sizeof(*t)) + cap(t.rec)
	if m := t.mapping; m != nil {
		n += int(unsafe.Sizeof(*m)) + len(m.Name) + len(m.BuildID)
	}
	return n
}

// Pending reports whether records wait for their turn.
func (s *Sorter) Pending() bool { return len(s.pending) > 0 }

// Flush calls each for every record from before the time, oldest first, with those that were decoded as
// mappings; records of one time keep the order in which they were added.
func (s *Sorter) Flush(before uint64, each func(rec []byte, mapping *perfdata.Mmap2)) {
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
		s.held -= e.size()
		each(e.rec, e.mapping)
	}
	s.pending = slices.Delete(s.pending, 0, n)
}
