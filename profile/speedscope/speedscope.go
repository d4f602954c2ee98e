// Package speedscope writes profiles for https://www.speedscope.app, as its
// file-format-schema.json describes them. Where samples tell their process, it is
// the root of the stack.
//
// A profile is usually one "sampled" profile whose stacks stand for no order in
// time. Where samples tell when they were taken (profile.Times), each thread is a
// profile whose stacks are in their order, with empty ones between them for the
// time that it did not run, if weights are time.
package speedscope

import (
	"encoding/binary"
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

// sampled is a "sampled" profile of the schema. Its stacks are indices of frames, outermost
// first, and what they weigh. There may be millions of them, so they are told one by one.
type sampled struct {
	name  string
	steps iter.Seq2[[]int, int64]
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
	b := builder{frames: map[frame]int{}, locations: map[*pprof.Location][]int{}}
	sum, line := newSum(), newTimeline(p, index)
	for _, s := range p.Sample {
		weight := s.Value[index]
		if weight < 0 {
			return profile.ErrNegative
		}
		stack := b.stack(s)
		if rest := weight - line.add(s, stack, weight); rest > 0 {
			sum.add(stack, rest)
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
	return writeFile(w, o.Name, unit, b.all, profiles)
}

// sum adds up what each stack weighs.
type sum struct {
	samples [][]int
	weights []int64
	total   int64
	stacks  map[string]int
}

func newSum() *sum { return &sum{stacks: map[string]int{}} }

func (s *sum) add(stack []int, weight int64) {
	var key []byte
	for _, i := range stack {
		key = binary.AppendUvarint(key, uint64(i))
	}
	at, ok := s.stacks[string(key)]
	if !ok {
		at = len(s.samples)
		s.stacks[string(key)] = at
		s.samples = append(s.samples, stack)
		s.weights = append(s.weights, 0)
	}
	s.weights[at] += weight
	s.total += weight
}

func (s *sum) steps(yield func([]int, int64) bool) {
	for i, stack := range s.samples {
		if !yield(stack, s.weights[i]) {
			return
		}
	}
}

// builder gives each frame its index.
type builder struct {
	all       []frame
	frames    map[frame]int
	locations map[*pprof.Location][]int // frames there, innermost first
}

// stack returns the frames of s, outermost first.
func (b *builder) stack(s *pprof.Sample) []int {
	stack := []int{}
	for _, l := range s.Location {
		stack = append(stack, b.at(l)...)
	}
	if process, _ := profile.Process(s); process != "" {
		stack = append(stack, b.index(frame{Name: process}))
	}
	slices.Reverse(stack)
	return stack
}

func (b *builder) at(l *pprof.Location) []int {
	frames, ok := b.locations[l]
	if !ok {
		for c := range profile.CallsAt(l) {
			frames = append(frames, b.index(frameOf(c)))
		}
		b.locations[l] = frames
	}
	return frames
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
