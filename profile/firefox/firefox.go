// Package firefox writes profiles for https://profiler.firefox.com, in its processed
// format (docs-developer/processed-profile-format.md of
// github.com/firefox-devtools/profiler): each thread has its own samples and tables, and
// libraries have the build IDs by which symbol servers know them.
//
// Samples that say when they were taken (profile.Times) are each at their time. Of
// those that do not, each stack is one sample with all of its weight, one behind the
// other: their times say nothing.
package firefox

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/profile"
)

// Options select what is written.
type Options struct {
	Name       string // of the profile, shown in the title
	SampleType string // sample type to weigh by; empty means the profile's default

	// MaxStacks is how many stacks a thread may have at most, each with one frame more than
	// another; 0 means DefaultMaxStacks. Beyond it Write returns profile.ErrTooLarge.
	MaxStacks int
}

// DefaultMaxStacks take 200 MB of memory.
const DefaultMaxStacks = 4 << 20

// Write writes p. Stacks that weigh nothing are left out. A difference of two profiles
// gives profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	index, err := profile.SampleIndex(p, o.SampleType)
	if err != nil {
		return err
	}
	b := &builder{most: cmp.Or(o.MaxStacks, DefaultMaxStacks), unit: unitOf(p.SampleType[index].Unit), value: index, libIndex: map[*pprof.Mapping]int{}, libOf: map[libKey]int{}, byOwner: map[owner]*thread{}}
	b.count = slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" })
	b.start = startOf(p)
	for _, s := range p.Sample {
		if s.Value[index] < 0 {
			return profile.ErrNegative
		}
		if s.Value[index] > 0 {
			b.add(s)
		}
	}
	return b.write(w, p, o.Name)
}

// unit is how the profiler calls what samples weigh.
type unit struct {
	name  string
	scale float64
}

// unitTime is the profiler's name of milliseconds.
const unitTime = "tracing-ms"

func unitOf(name string) unit {
	switch name {
	case "nanoseconds":
		return unit{unitTime, 1e-6}
	case "microseconds":
		return unit{unitTime, 1e-3}
	case "milliseconds":
		return unit{unitTime, 1}
	case "bytes":
		return unit{"bytes", 1}
	}
	return unit{"samples", 1}
}

// startOf returns when the first sample was taken, in ns since 1970.
func startOf(p *pprof.Profile) int64 {
	start := int64(math.MaxInt64)
	for _, s := range p.Sample {
		for _, t := range profile.Times(s) {
			start = min(start, t)
		}
	}
	if start == math.MaxInt64 || p.TimeNanos > 0 && p.TimeNanos < start {
		start = p.TimeNanos
	}
	return start
}

type builder struct {
	most     int // stacks of a thread
	unit     unit
	value    int // which value of a sample it weighs
	count    int // which value of a sample counts, -1 when none does
	start    int64
	libs     []lib
	libIndex map[*pprof.Mapping]int
	libOf    map[libKey]int
	byOwner  map[owner]*thread
	threads  []*thread
}

// libKey distinguishes libraries.
type libKey struct{ path, breakpadID string }

// owner is a thread.
type owner struct {
	process, thread string
	pid, tid        int64
}

// thread is what is known of one before it is written. Its tables are made then: there may be
// many threads, and only one at a time needs them.
type thread struct {
	owner
	total   int64
	samples []*pprof.Sample
}

func (b *builder) add(s *pprof.Sample) {
	var o owner
	o.process, o.pid = profile.Process(s)
	o.thread, o.tid = profile.Thread(s)
	t := b.byOwner[o]
	if t == nil {
		t = &thread{owner: o}
		b.byOwner[o] = t
		b.threads = append(b.threads, t)
	}
	t.total += s.Value[b.value]
	t.samples = append(t.samples, s)
	for _, l := range slices.Backward(s.Location) { // all threads come behind the list of libraries
		b.lib(l.Mapping)
	}
}

// lib returns the index of a mapping's file, -1 where there is none.
func (b *builder) lib(m *pprof.Mapping) int {
	if m == nil || m.File == "" {
		return -1
	}
	i, ok := b.libIndex[m]
	if ok {
		return i
	}
	name := profile.ShortName(m.File)
	l := lib{Name: name, Path: m.File, DebugName: name, DebugPath: m.File}
	if id, ok := profile.Identity(m); ok && !profile.IsClaimed(m) && (id.Kind() == buildid.GNU || id.Kind() == buildid.ByContent) {
		code := fmt.Sprintf("%x", id.Bytes())
		l.CodeID, l.BreakpadID = &code, breakpadID(id.Bytes())
	}
	// A file that has code in several segments has a mapping for each.
	key := libKey{l.Path, l.BreakpadID}
	if i, ok = b.libOf[key]; !ok {
		i = len(b.libs)
		b.libs = append(b.libs, l)
		b.libOf[key] = i
	}
	b.libIndex[m] = i
	return i
}

// breakpadID returns the name that Breakpad has for a file: the first 16 bytes of the
// build ID as a GUID, whose first three numbers are little-endian, and the age 0.
func breakpadID(id []byte) string {
	var g [16]byte
	copy(g[:], id)
	slices.Reverse(g[0:4])
	slices.Reverse(g[4:6])
	slices.Reverse(g[6:8])
	return strings.ToUpper(fmt.Sprintf("%x", g)) + "0"
}
