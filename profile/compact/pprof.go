package compact

import (
	"fmt"
	"maps"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/reason"
)

var errTooMuch = fmt.Errorf("%w: its stacks have too many frames, or its labels too many units", profile.ErrTooLarge)

func durationOf(nanos int64) time.Duration { return time.Duration(nanos) }

// sample adds a row.
func (b *builder) sample(s *pprof.Sample, numbers map[*pprof.Location]uint32, strings *stringNumbers) bool {
	at, list, ok := b.frames.room(len(s.Location))
	if !ok {
		return false
	}
	for i, l := range s.Location {
		list[len(list)-1-i] = numbers[l]
	}
	for i := range b.p.values {
		b.p.values[i].add(s.Value[i])
	}
	for _, key := range slices.Sorted(maps.Keys(s.Label)) {
		for _, text := range s.Label[key] {
			if text != "" {
				b.label(strings.number(key), strings.number(text), 0)
			}
		}
	}
	measured := b.p.numbers.value.n
	for _, key := range slices.Sorted(maps.Keys(s.NumLabel)) {
		units := s.NumUnit[key]
		for i, v := range s.NumLabel[key] {
			unit := ""
			if i < len(units) {
				unit = units[i]
			}
			switch {
			case unit == "":
				b.label(strings.number(key), 0, uint64(v))
			case !b.measure(strings.number(key), strings.number(unit), v):
				return false
			}
		}
	}
	b.row(at, uint32(len(list)), measured)
	return true
}

// Places returns the mappings, locations, functions and comments in pprof's form, without
// samples: profile.Symbolize and the like give them names. Mappings are copies.
func (p *Profile) Places() *pprof.Profile {
	out := &pprof.Profile{
		DefaultSampleType: p.defaultType, Period: p.period, TimeNanos: p.time, DurationNanos: int64(p.duration),
		PeriodType: &pprof.ValueType{Type: p.periodType.Type, Unit: p.periodType.Unit},
		DropFrames: p.dropFrames, KeepFrames: p.keepFrames, DocURL: p.docURL,
		Comments: slices.Clone(p.comments),
	}
	for _, t := range p.types {
		out.SampleType = append(out.SampleType, &pprof.ValueType{Type: t.Type, Unit: t.Unit})
	}
	for i, m := range p.mappings {
		own := *m
		own.ID = uint64(i + 1)
		out.Mapping = append(out.Mapping, &own)
	}
	functions := make([]pprof.Function, len(p.functions))
	for i, f := range p.functions {
		functions[i] = pprof.Function{ID: uint64(i + 1), Name: f.Name, SystemName: f.SystemName, Filename: f.Filename, StartLine: f.StartLine}
		out.Function = append(out.Function, &functions[i])
	}
	locations := make([]pprof.Location, len(p.locations))
	out.Location = make([]*pprof.Location, len(p.locations))
	for i := range p.locations {
		from, l := &p.locations[i], &locations[i]
		*l = pprof.Location{ID: uint64(i + 1), Address: from.Address, IsFolded: from.folded}
		if from.mapping != 0 {
			l.Mapping = out.Mapping[from.mapping-1]
		}
		for _, line := range p.Lines(from) {
			l.Line = append(l.Line, pprof.Line{Function: out.Function[line.Function()], Line: line.Line, Column: line.Column})
		}
		out.Location[i] = l
	}
	return out
}

// WithSymbols returns the profile with the places that Places returned, once they have other
// symbols, and with the reasons of those that have none. It shares the stacks with p, and takes
// the places over.
func (p *Profile) WithSymbols(named *pprof.Profile, misses profile.Misses) *Profile {
	out := &Profile{head: p.head, samples: p.samples, places: placesFrom(named)}
	out.misses = make(map[uint32]reason.Reason, len(misses))
	for i, l := range named.Location[:len(p.locations)] {
		if why, ok := misses[l]; ok {
			out.misses[uint32(i)] = why
		}
	}
	return out
}

// Pprof returns the whole profile in pprof's form, for exporters. It takes a dozen times the
// memory.
func (p *Profile) Pprof() *pprof.Profile {
	out := p.Places()
	labels := make([]pprofLabels, p.LabelSets())
	for i := range labels {
		labels[i] = labelsOf(p.LabelSet(uint32(i)))
	}
	stacks := make([][]*pprof.Location, p.tree.Nodes())
	for row := range p.Samples() {
		node := p.Node(row)
		if stacks[node] == nil {
			stacks[node] = p.stackOf(node, out.Location)
		}
		s := &pprof.Sample{Location: stacks[node]}
		for kind := range p.types {
			s.Value = append(s.Value, p.Value(row, kind))
		}
		own := labels[p.Labels(row)]
		s.Label, s.NumLabel, s.NumUnit = own.text, own.numbers, nil
		p.addMeasured(s, row)
		out.Sample = append(out.Sample, s)
	}
	return out
}

func (p *Profile) stackOf(node uint32, locations []*pprof.Location) []*pprof.Location {
	stack := []*pprof.Location{}
	for n := node; n != 0; n = p.tree.Parent(n) {
		for _, l := range slices.Backward(p.tree.Frames(n)) {
			stack = append(stack, locations[l])
		}
	}
	return stack
}

// pprofLabels are a set of labels as samples have them, which share them.
type pprofLabels struct {
	text    map[string][]string
	numbers map[string][]int64
}

func labelsOf(set []Label) (out pprofLabels) {
	for _, l := range set {
		if l.IsText {
			if out.text == nil {
				out.text = map[string][]string{}
			}
			out.text[l.Key] = append(out.text[l.Key], l.Text)
			continue
		}
		if out.numbers == nil {
			out.numbers = map[string][]int64{}
		}
		out.numbers[l.Key] = append(out.numbers[l.Key], l.Number)
	}
	return out
}

func (p *Profile) addMeasured(s *pprof.Sample, row int) {
	from, to := p.numbers.of(row)
	if from == to {
		return
	}
	s.NumLabel, s.NumUnit = maps.Clone(s.NumLabel), map[string][]string{}
	if s.NumLabel == nil {
		s.NumLabel = map[string][]int64{}
	}
	for i := from; i < to; i++ {
		k := p.numbers.kinds[p.numbers.kind.at(i)]
		for len(s.NumUnit[k.key]) < len(s.NumLabel[k.key]) {
			s.NumUnit[k.key] = append(s.NumUnit[k.key], "")
		}
		s.NumLabel[k.key] = append(s.NumLabel[k.key], p.numbers.value.at(i))
		s.NumUnit[k.key] = append(s.NumUnit[k.key], k.unit)
	}
}
