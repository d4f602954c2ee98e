package firefox

import (
	"iter"

	"hallmark/profile"
)

// samples are those of a thread. A sample of the profile is one here for each of its times.
type samples struct {
	unit    unit
	start   int64
	list    []sample
	order   *profile.TimeOrder // of the times in list
	untimed []moment
}

// sample is one of the profile.
type sample struct {
	stack         int
	times         []int64 // ns since 1970
	weight, count int64   // count is at least the number of times, and at most the weight if there are any
}

// moment is a sample, at a time (ns since the start).
type moment struct {
	time, weight int64
	stack        int // -1 for an empty one
}

// samplesOf brings the stacks of a thread into its tables, and its samples into order.
func (b *builder) samplesOf(th *thread, t *tables) *samples {
	out := &samples{unit: b.unit, start: b.start}
	var lists [][]int64
	for _, s := range th.samples {
		one := sample{stack: t.stack(s), times: profile.Times(s), weight: s.Value[b.value]}
		one.count = int64(len(one.times))
		if b.count >= 0 {
			one.count = max(one.count, s.Value[b.count])
		}
		if one.count > one.weight { // no part of it is left for each
			one.times = nil
		}
		if rest := one.untimed(); rest > 0 {
			out.untimed = append(out.untimed, moment{weight: rest, stack: one.stack})
		}
		out.list, lists = append(out.list, one), append(lists, one.times)
	}
	out.order = profile.OrderTimes(lists)
	out.spread()
	return out
}

// part is what a sample weighs at its time of this index: all weigh the same, but for the
// last ones, each of which has one more of what does not divide evenly.
func (s *sample) part(i int) int64 {
	part, rest := s.weight/s.count, s.weight%s.count
	if s.count-int64(i) <= rest {
		part++
	}
	return part
}

// untimed is what it weighs that has no time.
func (s *sample) untimed() int64 {
	n := int64(len(s.times))
	if n == 0 {
		return s.weight
	}
	part, rest := s.weight/s.count, s.weight%s.count
	return s.weight - n*part - max(0, n-(s.count-rest))
}

// all yields what is written, in order. Samples without a time come first, so that they are
// not taken for what ran between others.
func (s *samples) all() iter.Seq[moment] {
	return func(yield func(moment) bool) {
		for _, m := range s.untimed {
			if !yield(m) {
				return
			}
		}
		for i, at := range s.order.All() {
			one := &s.list[i]
			if !yield(moment{one.times[at] - s.start, one.part(at), one.stack}) {
				return
			}
		}
	}
}

func (s *samples) len() int { return len(s.untimed) + s.order.Len() }

// first returns the time of the first sample, in ns since the start.
func (s *samples) first() int64 {
	for m := range s.all() {
		return m.time
	}
	return 0
}

// spread gives samples without a time one: behind each other where the thread has no
// times at all, and else all that of the first.
func (s *samples) spread() {
	var at int64
	for i, at := range s.order.All() {
		for k := range s.untimed {
			s.untimed[k].time = s.list[i].times[at] - s.start
		}
		return
	}
	for i := range s.untimed {
		m := &s.untimed[i]
		m.time = at
		if s.unit.name == unitTime {
			at += int64(float64(m.weight) * s.unit.scale * 1e6)
		} else {
			at += 1e6
		}
	}
}

// running reports whether weights are how long the thread ran since the sample before: they
// are time on CPUs, and all samples have a time.
func (s *samples) running() bool { return s.unit.name == unitTime && len(s.untimed) == 0 }
