package query

import (
	"cmp"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/reason"
)

// Counts are what was counted for something, in the profile and in the base.
type Counts struct {
	Flat, Cum         int64
	BaseFlat, BaseCum int64
}

// FunctionRow is a frame in a table.
type FunctionRow struct {
	Frame int // in Set.Frames
	Counts
}

// BinaryRow is a binary in a table, and how much of its code is known.
type BinaryRow struct {
	Binary int // in Set.Binaries
	Counts
	Frames     int64         // in its code, as profile.Coverage counts them
	Identified int64         // those with the identity of their file
	Symbolized int64         // those with a function's name
	Gaps       []profile.Gap // why not the rest
}

// ProcessRow is all processes of one name.
type ProcessRow struct {
	Name           string
	PIDs           []int64
	Flat, BaseFlat int64
}

// LabelRow is all samples with one value of a label.
type LabelRow struct {
	Value          string
	Missing        bool // these have no such label
	Flat, BaseFlat int64
	Samples        int64 // as Selection.Samples
}

// LineRow is a line of source code.
type LineRow struct {
	Frame  int
	Source string
	Line   int64 // 0 where it is not known
	Counts
}

// AddressRow is an instruction.
type AddressRow struct {
	Frame   int // the innermost one there
	Binary  int
	BuildID string      // of its file: of the binary, or of its build in the base
	Offset  addr.Offset // in its file
	Virt    addr.Virt   // pprof's address: of the segment as Hallmark records it
	Source  string
	Line    int64
	Counts
}

// sums are flat and cum of things that are numbered.
type flatCum struct{ flat, cum []int64 }

// tally adds up things that frames of locations are: ids has the number of the thing for each
// frame in chains, -1 for none. A thing that is on a stack several times counts once.
func (w *weights) tally(ids []int32, things int) flatCum {
	out := flatCum{make([]int64, things), make([]int64, things)}
	on := make([]int32, things) // how often it is on the way to the node at hand
	innermost := make([]int32, w.tree.Nodes())
	each := func(n uint32, f func(id int32)) {
		for _, l := range w.tree.Frames(n) {
			for i := w.chains.start[l]; i < w.chains.start[l+1]; i++ {
				f(ids[i])
			}
		}
	}
	leave := func(n uint32) {
		each(n, func(id int32) {
			if id >= 0 {
				on[id]--
			}
		})
	}
	var path []uint32
	for n := range uint32(w.tree.Nodes()) {
		for len(path) > 0 && w.tree.End(path[len(path)-1]) <= n {
			leave(path[len(path)-1])
			path = path[:len(path)-1]
		}
		path = append(path, n)
		last := int32(-1)
		if n > 0 {
			last = innermost[w.tree.Parent(n)]
		}
		total := w.total[n]
		each(n, func(id int32) {
			if last = id; id < 0 {
				return
			}
			if on[id] == 0 {
				out.cum[id] += total
			}
			on[id]++
		})
		innermost[n] = last
		if last >= 0 {
			out.flat[last] += w.self[n]
		}
	}
	return out
}

// counts returns what things count in all profiles.
func (s *Selection) counts(things int, ids func(w *weights) []int32) []Counts {
	out := make([]Counts, things)
	for i, w := range s.sides {
		sum := w.tally(ids(w), things)
		for id := range out {
			if i == 0 {
				out[id].Flat, out[id].Cum = sum.flat[id], sum.cum[id]
			} else {
				out[id].BaseFlat, out[id].BaseCum = sum.flat[id], sum.cum[id]
			}
		}
	}
	return out
}

func (c *Counts) isZero() bool { return *c == Counts{} }

// Functions returns all functions on the stacks, by falling flat value.
func (s *Selection) Functions() []FunctionRow {
	rows := []FunctionRow{}
	for id, c := range s.counts(len(s.set.frames), func(w *weights) []int32 { return w.chains.frames }) {
		if !c.isZero() {
			rows = append(rows, FunctionRow{id, c})
		}
	}
	slices.SortFunc(rows, func(a, b FunctionRow) int {
		return cmp.Or(compareCounts(&a.Counts, &b.Counts), cmp.Compare(s.set.frames[a.Frame].Name, s.set.frames[b.Frame].Name), cmp.Compare(a.Frame, b.Frame))
	})
	return rows
}

func compareCounts(a, b *Counts) int {
	return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.Cum, a.Cum), cmp.Compare(b.BaseFlat, a.BaseFlat), cmp.Compare(b.BaseCum, a.BaseCum))
}

// Change is what the flat value of a row changed by, where the base counts so many times. Where
// that is nothing, nor is what it called, it is 0.
func (c *Counts) Change(scale float64) float64 { return float64(c.Flat) - scale*float64(c.BaseFlat) }

// CumChange is the same of what it called as well.
func (c *Counts) CumChange(scale float64) float64 { return float64(c.Cum) - scale*float64(c.BaseCum) }

// Changes returns the functions by what their flat values changed most by, in either direction.
// The base counts so many times: 1, or Selection.Scale.
func (s *Selection) Changes(scale float64) []FunctionRow {
	rows := s.Functions()
	slices.SortStableFunc(rows, func(a, b FunctionRow) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Change(scale)), math.Abs(a.Change(scale))),
			cmp.Compare(math.Abs(b.CumChange(scale)), math.Abs(a.CumChange(scale))))
	})
	return rows
}

// BinaryTable returns all binaries on the stacks, by falling flat value.
func (s *Selection) BinaryTable() []BinaryRow {
	counts := s.counts(len(s.set.binaries), func(w *weights) []int32 {
		ids := make([]int32, len(w.chains.frames))
		for l := range w.side.p.Locations() {
			b := int32(w.side.binaryOf(uint32(l)))
			for i := w.chains.start[l]; i < w.chains.start[l+1]; i++ {
				ids[i] = b
			}
		}
		return ids
	})
	known := s.coverageOfBinaries()
	rows := []BinaryRow{}
	for id, c := range counts {
		if !c.isZero() {
			k := known[id]
			rows = append(rows, BinaryRow{Binary: id, Counts: c, Frames: k.Frames, Identified: k.Identified, Symbolized: k.Symbolized, Gaps: k.Gaps})
		}
	}
	slices.SortFunc(rows, func(a, b BinaryRow) int {
		return cmp.Or(compareCounts(&a.Counts, &b.Counts), cmp.Compare(s.set.binaries[a.Binary].File, s.set.binaries[b.Binary].File), cmp.Compare(a.Binary, b.Binary))
	})
	return rows
}

// coverageOfBinaries returns how much of the code of each binary is known.
func (s *Selection) coverageOfBinaries() map[int]profile.Coverage {
	w := s.sides[0]
	meters := map[int]*profile.Meter{}
	for l, n := range w.framesAt() {
		b := w.side.binaryOf(uint32(l))
		if n != 0 && meters[b] == nil {
			meters[b] = profile.NewMeter(w.side.proofs)
		}
		if n != 0 {
			w.meter(meters[b], uint32(l), n)
		}
	}
	out := map[int]profile.Coverage{}
	for b, m := range meters {
		out[b] = m.Coverage()
	}
	return out
}

// framesAt returns how many frames each location stands for: as often as it is on a stack that
// was sampled.
func (w *weights) framesAt() []int64 {
	w.count()
	frames := make([]int64, w.side.p.Locations())
	for n, total := range w.counts.total {
		for _, l := range w.tree.Frames(uint32(n)) {
			frames[l] += total
		}
	}
	return frames
}

// meter counts frames at a location.
func (w *weights) meter(m *profile.Meter, location uint32, n int64) {
	p := w.side.p
	l := p.Location(location)
	named := false
	for _, line := range p.Lines(l) {
		f := &p.Functions()[line.Function()]
		if f.Name != "" || f.SystemName != "" {
			named = named || !profile.IsUnnamed(&pprof.Function{SystemName: f.SystemName})
		}
	}
	m.Frames(p.Mapping(l), n, named, p.Miss(location))
}

// Coverage returns how much of the stacks is known.
func (s *Selection) Coverage() profile.Coverage {
	w := s.sides[0]
	m := profile.NewMeter(w.side.proofs)
	for l, n := range w.framesAt() {
		if n != 0 {
			w.meter(m, uint32(l), n)
		}
	}
	w.meterStacks(m)
	return m.Coverage()
}

// meterStacks counts the ends of stacks.
func (w *weights) meterStacks(m *profile.Meter) {
	p := w.side.p
	type key struct {
		mapping *pprof.Mapping
		why     reason.Reason
	}
	ends, told := make([]reason.Reason, p.LabelSets()), make([]bool, p.LabelSets())
	for set := range ends {
		ends[set], told[set] = endOf(p, uint32(set))
	}
	outermost := w.outermostMappings()
	sum := map[key]int64{}
	kind, err := p.SampleType("samples")
	for row, part := range w.rows {
		set := p.Labels(row)
		if !told[set] {
			continue
		}
		n := int64(1)
		if err == nil {
			n = part.of(p.Value(row, kind))
		}
		sum[key{outermost[p.Node(row)], ends[set]}] += max(n, -n)
	}
	for k, n := range sum {
		m.Stack(k.why, k.mapping, n)
	}
}

// outermostMappings returns the mapping of the outermost frame, by node.
func (w *weights) outermostMappings() []*pprof.Mapping {
	out := make([]*pprof.Mapping, w.tree.Nodes())
	p := w.side.p
	for n := 1; n < len(out); n++ {
		if parent := w.tree.Parent(uint32(n)); parent != 0 {
			out[n] = out[parent]
		} else {
			out[n] = p.Mapping(p.Location(w.tree.Frames(uint32(n))[0]))
		}
	}
	return out
}

// Processes returns the processes by falling value, none where the profile names none.
func (s *Selection) Processes() []ProcessRow {
	rows := map[string]*ProcessRow{}
	pids := map[string]map[int64]bool{}
	for i, w := range s.sides {
		p := w.side.p
		for set, v := range w.sets {
			name, pid, ok := processOf(p.LabelSet(uint32(set)))
			if !ok || v == 0 {
				continue
			}
			row := rows[name]
			if row == nil {
				row = &ProcessRow{Name: name}
				rows[name], pids[name] = row, map[int64]bool{}
			}
			if i > 0 {
				row.BaseFlat += v
				continue
			}
			row.Flat += v
			if !pids[name][pid] {
				pids[name][pid] = true
				row.PIDs = append(row.PIDs, pid)
			}
		}
	}
	out := []ProcessRow{}
	for _, row := range rows {
		slices.Sort(row.PIDs)
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b ProcessRow) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.BaseFlat, a.BaseFlat), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// ByLabel returns what the samples count by the value of a label, the most first. A sample with several values of the
// label counts for each of them, as a LabelFilter chooses it by each.
func (s *Selection) ByLabel(key string) []LabelRow {
	rows := map[labelValue]*LabelRow{}
	for i, w := range s.sides {
		w.count()
		for set, v := range w.sets {
			n := w.counts.sets[set]
			if v == 0 && n == 0 {
				continue
			}
			for _, k := range valuesOf(w.side.p.LabelSet(uint32(set)), key) {
				row := rows[k]
				if row == nil {
					row = &LabelRow{Value: k.text, Missing: k.missing}
					rows[k] = row
				}
				if i > 0 {
					row.BaseFlat += v
					continue
				}
				row.Flat += v
				row.Samples += n
			}
		}
	}
	out := []LabelRow{}
	for _, row := range rows {
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b LabelRow) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.BaseFlat, a.BaseFlat), cmp.Compare(a.Value, b.Value))
	})
	return out
}

// labelValue is a value of a label, or that there is none.
type labelValue struct {
	text    string
	missing bool
}

// LabelSamples returns how many samples have each label, of both profiles. A sample with several values counts for each.
func (s *Selection) LabelSamples() map[string]int64 {
	samples := map[string]int64{}
	for _, w := range s.sides {
		w.count()
		for set, n := range w.counts.sets {
			for _, l := range w.side.p.LabelSet(uint32(set)) {
				samples[l.Key] += n
			}
		}
	}
	return samples
}

// valuesOf returns the different values of a label.
func valuesOf(labels []compact.Label, key string) []labelValue {
	var values []labelValue
	for i := range labels {
		if v := (labelValue{text: labels[i].Value()}); labels[i].Key == key && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if values == nil {
		values = []labelValue{{missing: true}}
	}
	return values
}

// Lines returns the lines of source of a frame, by falling flat value; those of all frames for
// -1.
func (s *Selection) Lines(frame int) []LineRow {
	type line struct {
		frame  int32
		source uint32
		line   int64
	}
	numbers := map[line]int32{}
	rows := []LineRow{}
	ids := make([][]int32, len(s.sides))
	for i, w := range s.sides {
		ids[i] = slices.Repeat([]int32{-1}, len(w.chains.frames))
		for j, f := range w.chains.frames {
			if frame >= 0 && int(f) != frame {
				continue
			}
			k := line{f, w.chains.sources[j], w.chains.lines[j]}
			n, ok := numbers[k]
			if !ok {
				n = int32(len(rows))
				numbers[k] = n
				rows = append(rows, LineRow{Frame: int(f), Source: s.set.sources[k.source], Line: k.line})
			}
			ids[i][j] = n
		}
	}
	counts := s.counts(len(rows), func(w *weights) []int32 { return ids[slices.Index(s.sides, w)] })
	for i := range rows {
		rows[i].Counts = counts[i]
	}
	rows = slices.DeleteFunc(rows, func(r LineRow) bool { return r.isZero() })
	slices.SortStableFunc(rows, func(a, b LineRow) int {
		return cmp.Or(compareCounts(&a.Counts, &b.Counts), cmp.Compare(a.Frame, b.Frame), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line))
	})
	return rows
}

// Addresses returns the instructions of a frame, inlined code in it included, by binary and file
// offset. Those of two builds are apart.
func (s *Selection) Addresses(frame int) []AddressRow {
	type place struct {
		file, buildID string
		address       uint64 // file offset, or address outside of any file
	}
	numbers := map[place]int32{}
	rows := []AddressRow{}
	ids := make([][]int32, len(s.sides))
	for i, w := range s.sides {
		p := w.side.p
		ids[i] = slices.Repeat([]int32{-1}, len(w.chains.frames))
		for l := range p.Locations() {
			chain := w.chains.of(uint32(l))
			if !slices.Contains(chain, int32(frame)) {
				continue
			}
			from := p.Location(uint32(l))
			m := p.Mapping(from)
			k := place{address: from.Address}
			offset := profile.FileOffset(&pprof.Location{Mapping: m, Address: from.Address})
			if m != nil && from.Address >= m.Start && from.Address < m.Limit { // one address of two mappings is two places
				k = place{m.File, m.BuildID, uint64(offset)}
			} else if m != nil {
				k.file, k.buildID = m.File, m.BuildID
			}
			n, ok := numbers[k]
			if !ok {
				n = int32(len(rows))
				numbers[k] = n
				last := w.chains.start[l+1] - 1
				innermost := w.chains.frames[last]
				row := AddressRow{
					Frame: int(innermost), Binary: w.side.binaryOf(uint32(l)),
					Offset: offset, Virt: addr.Virt(from.Address),
					Source: s.set.sources[w.chains.sources[last]], Line: w.chains.lines[last],
				}
				if m != nil {
					row.BuildID = m.BuildID
				}
				rows = append(rows, row)
			}
			for j := w.chains.start[l]; j < w.chains.start[l+1]; j++ {
				ids[i][j] = n
			}
		}
	}
	counts := s.counts(len(rows), func(w *weights) []int32 { return ids[slices.Index(s.sides, w)] })
	for i := range rows {
		rows[i].Counts = counts[i]
	}
	rows = slices.DeleteFunc(rows, func(r AddressRow) bool { return r.isZero() })
	slices.SortFunc(rows, func(a, b AddressRow) int {
		return cmp.Or(cmp.Compare(a.Binary, b.Binary), cmp.Compare(a.Offset, b.Offset), compareCounts(&a.Counts, &b.Counts))
	})
	return rows
}
