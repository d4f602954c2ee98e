package speedscope

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// timeline has the samples that say when they were taken, by thread.
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

// moments are the samples of a thread. Each is a stack that ran for the weight until its
// time, both in ns; or that weighs something else at the time. There may be millions, so that
// they are not laid out, but found again whenever they are gone through.
type moments struct {
	list  []timed
	order *profile.TimeOrder
	total int64
}

// timed is a stack that was seen at some times.
type timed struct {
	sample        *pprof.Sample
	times         []int64
	weight, count int64 // count is at least the number of times, and at most the weight
}

// part is what a stack weighs at its time of this index: the last one of all that were
// counted has what the division left.
func (t *timed) part(i int) int64 {
	part := t.weight / t.count
	if int64(i) == t.count-1 {
		part += t.weight % t.count
	}
	return part
}

// total is what it weighs at all of its times.
func (t *timed) total() int64 {
	n := int64(len(t.times))
	if n == t.count {
		return t.weight
	}
	return n * (t.weight / t.count)
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
func (t *timeline) add(s *pprof.Sample, weight int64) int64 {
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
	one := timed{s, times, weight, count}
	m.list = append(m.list, one)
	m.total += one.total()
	return one.total()
}

// profiles returns a profile of each thread, the busiest first. They count from
// the first moment of all, because numbers of JavaScript are exact up to 2^53 only.
func (t *timeline) profiles() []sampled {
	var ids []thread
	start := int64(0)
	for id, m := range t.threads {
		ids = append(ids, id)
		m.putInOrder()
		if first := m.first(); t.toScale && (start == 0 || first < start) {
			start = first
		}
	}
	slices.SortFunc(ids, func(a, b thread) int {
		return cmp.Or(cmp.Compare(t.threads[b].total, t.threads[a].total), cmp.Compare(a.process, b.process),
			cmp.Compare(a.pid, b.pid), cmp.Compare(a.name, b.name), cmp.Compare(a.tid, b.tid))
	})
	var profiles []sampled
	for _, id := range ids {
		profiles = append(profiles, sampled{id.String(), t.threads[id].steps(start, t.toScale)})
	}
	return profiles
}

func (m *moments) putInOrder() {
	lists := make([][]int64, len(m.list))
	for i := range m.list {
		lists[i] = m.list[i].times
	}
	m.order = profile.OrderTimes(lists)
}

// first returns when the first stack began to run, if weights are times.
func (m *moments) first() int64 {
	for i, at := range m.order.All() {
		return m.list[i].times[at] - m.list[i].part(at)
	}
	return 0
}

// steps lays the stacks out in time, without changing what they weigh: one that
// would overlap the one before comes later. Where weights are no time (events, bytes),
// stacks are in the order of time, one behind the other: there is one axis for both.
func (m *moments) steps(start int64, toScale bool) iter.Seq2[*pprof.Sample, int64] {
	return func(yield func(*pprof.Sample, int64) bool) {
		end := int64(0)
		for i, at := range m.order.All() {
			one := &m.list[i]
			weight := one.part(at)
			if gap := one.times[at] - weight - start - end; toScale && gap > 0 {
				if !yield(nil, gap) {
					return
				}
				end += gap
			}
			if !yield(one.sample, weight) {
				return
			}
			end += weight
		}
	}
}
