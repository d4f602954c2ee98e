// Package speedscope writes profiles for https://www.speedscope.app, as its
// file-format-schema.json describes them: one "sampled" profile whose stacks
// stand for no order in time, since a pprof profile has none. Where samples tell
// their process, it is the root of the stack.
package speedscope

import (
	"encoding/binary"
	"encoding/json"
	"io"
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

// The types below are those of the schema with the same names.
type (
	file struct {
		Schema   string           `json:"$schema"`
		Name     string           `json:"name,omitempty"`
		Exporter string           `json:"exporter"`
		Shared   shared           `json:"shared"`
		Profiles []sampledProfile `json:"profiles"`
	}
	shared struct {
		Frames []frame `json:"frames"`
	}
	frame struct {
		Name string `json:"name"`
		File string `json:"file,omitempty"`
		Line int64  `json:"line,omitempty"` // where the function starts
	}
	sampledProfile struct {
		Type       string  `json:"type"`
		Name       string  `json:"name"`
		Unit       string  `json:"unit"`
		StartValue int64   `json:"startValue"`
		EndValue   int64   `json:"endValue"`
		Samples    [][]int `json:"samples"` // indices of frames, outermost first
		Weights    []int64 `json:"weights"`
	}
)

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
	b := builder{frames: map[frame]int{}, locations: map[*pprof.Location][]int{}, stacks: map[string]int{}}
	for _, s := range p.Sample {
		switch weight := s.Value[index]; {
		case weight < 0:
			return profile.ErrNegative
		case weight > 0:
			b.add(s, weight)
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(b.file(o.Name, p.SampleType[index]))
}

// builder gives each frame and each stack its index.
type builder struct {
	shared    shared
	samples   [][]int
	weights   []int64
	total     int64
	frames    map[frame]int
	locations map[*pprof.Location][]int // frames there, innermost first
	stacks    map[string]int
}

func (b *builder) add(s *pprof.Sample, weight int64) {
	stack := b.stack(s)
	var key []byte
	for _, i := range stack {
		key = binary.AppendUvarint(key, uint64(i))
	}
	at, ok := b.stacks[string(key)]
	if !ok {
		at = len(b.samples)
		b.stacks[string(key)] = at
		b.samples = append(b.samples, stack)
		b.weights = append(b.weights, 0)
	}
	b.weights[at] += weight
	b.total += weight
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
		i = len(b.shared.Frames)
		b.frames[f] = i
		b.shared.Frames = append(b.shared.Frames, f)
	}
	return i
}

func (b *builder) file(name string, t *pprof.ValueType) file {
	unit, ok := units[t.Unit]
	if !ok {
		unit = "none"
	}
	return file{
		Schema:   schema,
		Name:     name,
		Exporter: "hallmark",
		Shared:   shared{Frames: notNil(b.shared.Frames)},
		Profiles: []sampledProfile{{
			Type: "sampled", Name: t.Type, Unit: unit,
			EndValue: b.total,
			Samples:  notNil(b.samples),
			Weights:  notNil(b.weights),
		}},
	}
}

// notNil makes an empty list one in JSON as well, where nil is null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
