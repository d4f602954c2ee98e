package speedscope

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// timeline has the samples that tell when they were taken, by thread.
type timeline struct {
	toScale bool // weights are nanoseconds, as times are
	count   int  // which value of a sample counts, -1 when none does
	threads map[thread]*moments
}

type thread struct {
	process, name string
	pid, tid      int64
}

func (t thread) String() string {
	if t.tid == 0 {
		return t.process
	}
	return fmt.Sprintf("%s (%d), thread %s (%d)", t.process, t.pid, t.name, t.tid)
}

// moments are the samples of a thread.
type moments struct {
	list  []moment
	total int64
}

// moment is a stack that ran for the weight until the time, both in ns; or that weighs
// something else at the time.
type moment struct {
	time, weight int64
	stack        []int
}

func newTimeline(p *pprof.Profile, index int) *timeline {
	return &timeline{
		toScale: p.SampleType[index].Unit == "nanoseconds",
		count:   slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" }),
		threads: map[thread]*moments{},
	}
}

// add puts a sample of a weight at each of its times. It returns how much of the
// weight has a time.
func (t *timeline) add(s *pprof.Sample, stack []int, weight int64) int64 {
	times := profile.Times(s)
	count := int64(len(times))
	if t.count >= 0 {
		count = max(count, s.Value[t.count])
	}
	if len(times) == 0 || weight < count {
		return 0
	}
	var id thread
	id.process, id.pid = profile.Process(s)
	id.name, id.tid = profile.Thread(s)
	m := t.threads[id]
	if m == nil {
		m = &moments{}
		t.threads[id] = m
	}
	timed, each := int64(0), weight/count
	for i, at := range times {
		w := each
		if int64(i) == count-1 {
			w = weight - timed // with what the division left
		}
		m.list = append(m.list, moment{at, w, stack})
		timed += w
	}
	m.total += timed
	return timed
}

// profiles returns a profile of each thread, the busiest first. They count from
// the first moment of all, because numbers of JavaScript are exact up to 2^53 only.
func (t *timeline) profiles() []sampled {
	var ids []thread
	start := int64(0)
	for id, m := range t.threads {
		ids = append(ids, id)
		slices.SortStableFunc(m.list, func(a, b moment) int { return cmp.Compare(a.time, b.time) })
		if first := m.list[0].time - m.list[0].weight; t.toScale && (start == 0 || first < start) {
			start = first
		}
	}
	slices.SortFunc(ids, func(a, b thread) int {
		return cmp.Or(cmp.Compare(t.threads[b].total, t.threads[a].total), cmp.Compare(a.String(), b.String()))
	})
	var profiles []sampled
	for _, id := range ids {
		profiles = append(profiles, sampled{id.String(), t.threads[id].steps(start, t.toScale)})
	}
	return profiles
}

// steps lays the stacks out in time, without changing what they weigh: one that
// would overlap the one before comes later. Where weights are no time (events, bytes),
// stacks are in the order of time, one behind the other: there is one axis for both.
func (m *moments) steps(start int64, toScale bool) iter.Seq2[[]int, int64] {
	return func(yield func([]int, int64) bool) {
		end := int64(0)
		for _, at := range m.list {
			if gap := at.time - at.weight - start - end; toScale && gap > 0 {
				if !yield(nil, gap) {
					return
				}
				end += gap
			}
			if !yield(at.stack, at.weight) {
				return
			}
			end += at.weight
		}
	}
}
