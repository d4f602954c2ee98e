package firefox

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/jsonstream"
	"hallmark/profile"
)

// writer writes the types of the profiler that hold all others: Profile, RawThread and
// RawSamplesTable.
type writer struct{ *jsonstream.Writer }

func (b *builder) write(to io.Writer, p *pprof.Profile, name string) error {
	w := writer{jsonstream.NewWriter(to)}
	w.Field(`{"meta":`, b.meta(p, name))
	w.Field(`,"libs":`, append([]lib{}, b.libs...))
	w.Text(`,"pages":[],"counters":[],"profilerOverhead":[],"threads":[`)
	slices.SortStableFunc(b.threads, func(a, b *thread) int { return cmp.Compare(b.total, a.total) })
	for i, th := range b.threads {
		w.Comma(i)
		t := newTables(b)
		samples := b.samplesOf(th, t)
		if n := len(t.stackTable.frame); n > b.most {
			return fmt.Errorf("%w: thread %q of %q has stacks of more than %d frames", profile.ErrTooLarge, th.thread, th.process, b.most)
		}
		w.thread(th.owner, samples, t)
		if w.Failed() {
			break
		}
	}
	w.Text("]}\n")
	return w.Flush()
}

func (b *builder) meta(p *pprof.Profile, name string) meta {
	return meta{
		Interval: max(float64(p.Period)/1e6, 1e-3), StartTime: float64(b.start) / 1e6,
		Product: cmp.Or(name, "profile"), Importer: "hallmark", Stackwalk: 1, Version: 27,
		PreprocessedProfileVersion: version, Symbolicated: true, UsesOnlyOneStackType: true, NotSearchfox: true,
		Categories: categories, MarkerSchema: []any{},
		Extensions:  extensions{[]string{}, []string{}, []string{}, 0},
		SampleUnits: sampleUnits{"ms", "ms", "µs"},
	}
}

func (w writer) thread(o owner, s *samples, t *tables) {
	w.Text(`{"processType":"default","processStartupTime":0,"processShutdownTime":null,"registerTime":`)
	w.Float(float64(s.first()) / 1e6)
	w.Text(`,"unregisterTime":null,"pausedRanges":[]`)
	w.Field(`,"processName":`, cmp.Or(o.process, "profile"))
	w.Field(`,"name":`, cmp.Or(o.thread, o.process, "profile"))
	w.Field(`,"isMainThread":`, o.tid == o.pid || o.tid == 0)
	w.Field(`,"pid":`, o.number())
	w.Field(`,"tid":`, o.tid)
	w.samples(s)
	w.Text(`,"markers":{"length":0,"data":[],"name":[],"startTime":[],"endTime":[],"phase":[],"category":[]}`)
	w.stacks(t)
	w.Field(`,"frameTable":`, &t.frameTable)
	w.Field(`,"funcTable":`, &t.funcTable)
	w.Field(`,"resourceTable":`, &t.resourceTable)
	w.Text(`,"nativeSymbols":{"length":0,"libIndex":[],"address":[],"name":[],"functionSize":[]}`)
	w.Field(`,"stringArray":`, t.stringArray)
	w.Text("}")
}

// stacks writes the table of stacks.
func (w writer) stacks(t *tables) {
	s := &t.stackTable
	w.Text(`,"stackTable":{"length":`)
	w.Int(int64(len(s.frame)))
	for _, column := range []struct {
		key   string
		value func(i int) int
	}{
		{`,"frame":[`, func(i int) int { return int(s.frame[i]) }},
		{`,"prefix":[`, func(i int) int { return int(s.prefix[i]) }},
		{`,"category":[`, func(i int) int { return t.frameTable.Category[s.frame[i]] }},
		{`,"subcategory":[`, func(int) int { return 0 }},
	} {
		w.Text(column.key)
		for i := range s.frame {
			w.Comma(i)
			if n := column.value(i); n < 0 {
				w.Text("null")
			} else {
				w.Int(int64(n))
			}
		}
		w.Text("]")
	}
	w.Text("}")
}

// number is that of the process. Threads of one process are those that have one number.
func (o owner) number() string {
	if o.pid == 0 {
		return cmp.Or(o.process, "0")
	}
	return strconv.FormatInt(o.pid, 10)
}

// samples writes a column after the other. Where all samples have a time, time on CPUs (µs)
// is what the thread ran since the sample before: the profiler draws its graphs of activity
// by that.
func (w writer) samples(s *samples) {
	w.Text(`,"samples":{"length":`)
	w.Int(int64(s.len()))
	w.column(`,"stack":[`, s, func(m moment) {
		if m.stack < 0 {
			w.Text("null")
		} else {
			w.Int(int64(m.stack))
		}
	})
	w.column(`,"time":[`, s, func(m moment) { w.Float(float64(m.time) / 1e6) }) // ms since the start
	w.column(`,"weight":[`, s, func(m moment) { w.Float(float64(m.weight) * s.unit.scale) })
	w.Field(`,"weightType":`, s.unit.name)
	if s.running() {
		w.column(`,"threadCPUDelta":[`, s, func(m moment) { w.Float(float64(m.weight) * s.unit.scale * 1e3) })
	}
	w.Text("}")
}

func (w writer) column(key string, s *samples, write func(moment)) {
	w.Text(key)
	n := 0
	for m := range s.all() {
		w.Comma(n)
		n++
		write(m)
	}
	w.Text("]")
}
