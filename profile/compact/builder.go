package compact

import (
	"encoding/binary"
	"fmt"
	"math"

	pprof "github.com/google/pprof/profile"
)

// builder makes a profile of rows and places, in whatever order they come.
type builder struct {
	p       *Profile
	frames  frames
	stacks  vec[stackAt] // of each row
	sets    interner
	key     []byte
	kinds   map[numberKey]uint16
	keys    []numberKey
	counts  vec[uint32] // of each row: how many measurements, from the first row on that has one
	counted int         // rows before that
}

// numberKey is a kind of measurement, in numbers of strings.
type numberKey struct{ key, unit uint64 }

func newBuilder() *builder {
	p := &Profile{head: head{limits: noLimits}, samples: &samples{}, places: &places{}}
	p.numbers.times = -1
	return &builder{p: p, kinds: map[numberKey]uint16{}}
}

// label adds a label of the row that is next to the key of its set.
func (b *builder) label(key, text, number uint64) {
	b.key = binary.AppendUvarint(b.key, key)
	b.key = binary.AppendUvarint(b.key, text)
	b.key = binary.AppendUvarint(b.key, number)
}

// measure adds a measurement of the row that is next. It reports false where there are too many
// kinds of them.
func (b *builder) measure(key, unit uint64, value int64) bool {
	k := numberKey{key, unit}
	kind, ok := b.kinds[k]
	if !ok {
		if len(b.keys) == math.MaxUint16 {
			return false
		}
		kind = uint16(len(b.keys))
		b.kinds[k], b.keys = kind, append(b.keys, k)
	}
	b.p.numbers.kind.add(kind)
	b.p.numbers.value.add(value)
	return true
}

// row ends a row, whose stack is in frames. It began when there were so many measurements.
func (b *builder) row(at, n uint32, measured int) {
	b.stacks.add(stackAt{at, n})
	set, _ := b.sets.number(b.key)
	b.key = b.key[:0]
	b.p.owner.add(set)
	if more := b.p.numbers.value.n - measured; more > 0 || b.counts.n > 0 {
		if b.counts.n == 0 {
			b.counted = b.stacks.n - 1
		}
		b.counts.add(uint32(more))
	}
}

// finish puts the rows together. The strings of labels are by their numbers.
func (b *builder) finish(text func(uint64) (string, error)) (*Profile, error) {
	if err := b.finishLabels(text); err != nil {
		return nil, err
	}
	b.finishNumbers()
	b.sets = interner{}
	b.p.tree, b.p.node = buildTree(&b.frames, &b.stacks, len(b.p.locations))
	return b.p, nil
}

func (b *builder) finishLabels(text func(uint64) (string, error)) error {
	var labels []Label
	for i := range b.sets.bytes.len() {
		labels = labels[:0]
		for rest := b.sets.bytes.at(i); len(rest) > 0; {
			var parts [3]uint64
			for j := range parts {
				v, n := binary.Uvarint(rest)
				parts[j], rest = v, rest[n:]
			}
			l := Label{Number: int64(parts[2]), IsText: parts[1] != 0}
			var err error
			if l.Key, err = text(parts[0]); err != nil {
				return err
			}
			if l.Text, err = text(parts[1]); err != nil {
				return err
			}
			labels = append(labels, l)
		}
		b.p.sets.add(labels)
	}
	return b.finishKinds(text)
}

// finishKinds has a kind of measurement once, whose text may have several numbers.
func (b *builder) finishKinds(text func(uint64) (string, error)) error {
	n := &b.p.numbers
	known, number := map[numberKind]uint16{}, make([]uint16, len(b.keys))
	for i, k := range b.keys {
		key, err := text(k.key)
		if err != nil {
			return err
		}
		unit, err := text(k.unit)
		if err != nil {
			return err
		}
		kind := numberKind{key, unit}
		at, ok := known[kind]
		if !ok {
			at = uint16(len(n.kinds))
			known[kind], n.kinds = at, append(n.kinds, kind)
		}
		number[i] = at
	}
	if len(n.kinds) == len(b.keys) {
		return nil
	}
	for _, piece := range n.kind.pieces {
		for i := range piece {
			piece[i] = number[piece[i]]
		}
	}
	return nil
}

// The label of times, as package profile writes it.
const (
	timeLabel = "timestamp"
	timeUnit  = "nanoseconds"
)

func (b *builder) finishNumbers() {
	n := &b.p.numbers
	for i, k := range n.kinds {
		if k.key == timeLabel && k.unit == timeUnit {
			n.times = i
		}
	}
	if b.counts.n == 0 {
		return
	}
	n.start = make([]uint32, 0, b.counted+b.counts.n)
	at := uint32(0)
	for range b.counted {
		n.start = append(n.start, 0)
	}
	for i := range b.counts.n {
		n.start = append(n.start, at)
		at += b.counts.at(i)
	}
	b.counts = vec[uint32]{}
}

// FromPprof returns p in little memory. It shares the mappings of p, which must not change
// after.
func FromPprof(p *pprof.Profile) (*Profile, error) {
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("profile is not sound: %w", err)
	}
	b := newBuilder()
	b.head(p)
	numbers := b.placesOf(p)
	strings := stringNumbers{known: map[string]uint64{"": 0}, all: []string{""}}
	b.p.values = make([]column, len(p.SampleType))
	for _, s := range p.Sample {
		if !b.sample(s, numbers, &strings) {
			return nil, errTooMuch
		}
	}
	return b.finish(func(n uint64) (string, error) { return strings.all[n], nil })
}

func (b *builder) head(p *pprof.Profile) {
	h := &b.p.head
	for _, t := range p.SampleType {
		h.types = append(h.types, ValueType{t.Type, t.Unit})
	}
	h.defaultType, h.period, h.time, h.duration = p.DefaultSampleType, p.Period, p.TimeNanos, durationOf(p.DurationNanos)
	if p.PeriodType != nil {
		h.periodType = ValueType{p.PeriodType.Type, p.PeriodType.Unit}
	}
	h.dropFrames, h.keepFrames, h.docURL = p.DropFrames, p.KeepFrames, p.DocURL
}

// placesOf adds the places of p, and returns the numbers of its locations.
func (b *builder) placesOf(p *pprof.Profile) map[*pprof.Location]uint32 {
	*b.p.places = *placesFrom(p)
	numbers := make(map[*pprof.Location]uint32, len(p.Location))
	for i, l := range p.Location {
		numbers[l] = uint32(i)
	}
	return numbers
}

// placesFrom returns the places of p, with the locations in its order.
func placesFrom(p *pprof.Profile) *places {
	out := &places{mappings: p.Mapping, comments: p.Comments}
	mappings := make(map[*pprof.Mapping]uint32, len(p.Mapping))
	for i, m := range p.Mapping {
		mappings[m] = uint32(i + 1)
	}
	functions := make(map[*pprof.Function]uint32, len(p.Function))
	for i, f := range p.Function {
		functions[f] = uint32(i + 1)
		out.functions = append(out.functions, Function{f.Name, f.SystemName, f.Filename, f.StartLine})
	}
	out.locations = make([]Location, 0, len(p.Location))
	for _, l := range p.Location {
		from := uint32(len(out.lines))
		for _, line := range l.Line {
			out.lines = append(out.lines, Line{functions[line.Function], line.Line, line.Column})
		}
		out.locations = append(out.locations, Location{
			Address: l.Address, mapping: mappings[l.Mapping], line: from, end: uint32(len(out.lines)), folded: l.IsFolded,
		})
	}
	return out
}

// stringNumbers gives numbers to strings.
type stringNumbers struct {
	known map[string]uint64
	all   []string
}

func (s *stringNumbers) number(text string) uint64 {
	n, ok := s.known[text]
	if !ok {
		n = uint64(len(s.all))
		s.known[text], s.all = n, append(s.all, text)
	}
	return n
}
