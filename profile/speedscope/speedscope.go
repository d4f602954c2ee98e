// Package speedscope writes profiles for https://www.speedscope.app, as its
// file-format-schema.json describes them. Where samples name their process, it is
// the root of the stack.
//
// A profile is usually one "sampled" profile whose stacks stand for no order in
// time. Where samples say when they were taken (profile.Times), each thread is a
// profile whose stacks are in their order, with empty ones between them for the
// time that it did not run, if weights are time.
package speedscope

import (
	"hash/maphash"
	"io"
	"iter"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// Options select what is written.
type Options struct {
	Name       string // of the profile, shown in the title
	SampleType string // sample type to weigh by; empty means the profile's default
}

const schema = "https://www.speedscope.app/file-format-schema.json"

// frame is the type of the schema with this name.
type frame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int64  `json:"line,omitempty"` // where the function starts
}

// sampled is a "sampled" profile of the schema. Its stacks are those of samples, nil for an
// empty one, and what they weigh. There may be millions of them, so they are passed on one by one.
type sampled struct {
	name  string
	steps iter.Seq2[*pprof.Sample, int64]
}

// units are the units that the schema knows, by pprof's names.
var units = map[string]string{
	"nanoseconds": "nanoseconds", "microseconds": "microseconds",
	"milliseconds": "milliseconds", "seconds": "seconds", "bytes": "bytes",
}

// Write writes p. Stacks that weigh nothing are left out. A difference of two
// profiles gives profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	index, err := profile.SampleIndex(p, o.SampleType)
	if err != nil {
		return err
	}
	b := newBuilder(p)
	sum, line := newSum(b), newTimeline(p, index)
	for _, s := range p.Sample {
		weight := s.Value[index]
		if weight < 0 {
			return profile.ErrNegative
		}
		b.prepare(s)
		if rest := weight - line.add(s, weight); rest > 0 {
			sum.add(s, rest)
		}
	}
	profiles := line.profiles() // the threads come before what has no time
	if sum.total > 0 || len(profiles) == 0 {
		profiles = append(profiles, sampled{p.SampleType[index].Type, sum.steps})
	}
	unit, ok := units[p.SampleType[index].Unit]
	if !ok {
		unit = "none"
	}
	return writeFile(w, o.Name, unit, b, profiles)
}

// sum adds up what each stack weighs. It keeps of each a sample that has it: written out, a
// stack may be very much larger than its sample.
type sum struct {
	builder *builder
	seed    maphash.Seed
	samples []*pprof.Sample
	weights []int64
	total   int64
	stacks  map[uint64][]int // by hash of their frames
}

func newSum(b *builder) *sum {
	return &sum{builder: b, seed: maphash.MakeSeed(), stacks: map[uint64][]int{}}
}

func (s *sum) add(one *pprof.Sample, weight int64) {
	s.total += weight
	hash := s.hash(one)
	for _, at := range s.stacks[hash] {
		if s.builder.same(s.samples[at], one) {
			s.weights[at] += weight
			return
		}
	}
	s.stacks[hash] = append(s.stacks[hash], len(s.samples))
	s.samples = append(s.samples, one)
	s.weights = append(s.weights, weight)
}

func (s *sum) hash(one *pprof.Sample) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for i := range s.builder.stack(one) {
		maphash.WriteComparable(&h, i)
	}
	return h.Sum64()
}

func (s *sum) steps(yield func(*pprof.Sample, int64) bool) {
	for i, one := range s.samples {
		if !yield(one, s.weights[i]) {
			return
		}
	}
}

// builder gives each frame its index.
type builder struct {
	all       []frame
	frames    map[frame]int
	locations *profile.PerLocation[[]int] // frames there, outermost first
}

func newBuilder(p *pprof.Profile) *builder {
	return &builder{frames: map[frame]int{}, locations: profile.NewPerLocation[[]int](p)}
}

// prepare gives the frames of s their indices, the innermost first.
func (b *builder) prepare(s *pprof.Sample) {
	for _, l := range s.Location {
		if at := b.locations.At(l); *at == nil {
			*at = b.framesAt(l)
		}
	}
	if process, _ := profile.Process(s); process != "" {
		b.index(frame{Name: process})
	}
}

func (b *builder) framesAt(l *pprof.Location) []int {
	var frames []int
	for c := range profile.CallsAt(l) {
		frames = append(frames, b.index(frameOf(c)))
	}
	slices.Reverse(frames)
	return frames
}

// stack yields the frames of a sample that was prepared, outermost first; none for nil.
func (b *builder) stack(s *pprof.Sample) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s == nil {
			return
		}
		if process, _ := profile.Process(s); process != "" && !yield(b.index(frame{Name: process})) {
			return
		}
		for _, l := range slices.Backward(s.Location) {
			for _, i := range *b.locations.At(l) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// same reports whether two samples have the same stack.
func (b *builder) same(x, y *pprof.Sample) bool {
	if slices.Equal(x.Location, y.Location) {
		p, _ := profile.Process(x)
		q, _ := profile.Process(y)
		return p == q
	}
	next, stop := iter.Pull(b.stack(y))
	defer stop()
	for i := range b.stack(x) {
		if k, ok := next(); !ok || i != k {
			return false
		}
	}
	_, more := next()
	return !more
}

// frameOf returns the frame of a function, the same wherever in it the call is:
// speedscope adds up the time of equal frames only.
func frameOf(c profile.Call) frame {
	f := frame{Name: c.Name()}
	if c.Function != nil {
		f.File, f.Line = c.Function.Filename, c.Function.StartLine
	}
	if f.File == "" && c.Location.Mapping != nil {
		f.File = c.Location.Mapping.File
	}
	return f
}

func (b *builder) index(f frame) int {
	i, ok := b.frames[f]
	if !ok {
		i = len(b.all)
		b.frames[f] = i
		b.all = append(b.all, f)
	}
	return i
}
