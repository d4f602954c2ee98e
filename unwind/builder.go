package unwind

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"hallmark/addr"
)

// maxRules is how many distinct rules a table can have.
const maxRules = 1 << 16

// A builder makes a table of layers.
type builder struct {
	file   *elfFile
	opts   BuildOptions
	bounds *boundedReader // what file reads from
	flags  Flags
	layers []*layer
	base   addr.Offset // of the first executable segment, at a granule
}

func newBuilder(f *elfFile, o BuildOptions) *builder {
	b := &builder{file: f, opts: o, bounds: new(boundedReader), base: math.MaxUint64}
	for _, s := range f.text {
		b.base = min(b.base, addr.Offset(s.off)&^(granule-1))
	}
	return b
}

// layer puts a layer behind those that there are: it has the word where they have none.
func (b *builder) layer(s Source) *layer {
	l := &layer{base: b.base, source: s, limits: b.opts.limits()}
	b.layers = append(b.layers, l)
	return l
}

// part adds a part to a layer. The order of parts counts, see layer.
func (l *layer) part() *part {
	p := &part{layer: l, rules: newRules()}
	l.parts = append(l.parts, p)
	return p
}

// warn reports damage whose place has no rules now.
func (b *builder) warn(err error) {
	if err != nil && b.opts.Warn != nil {
		b.opts.Warn(err)
	}
}

// table merges the layers.
func (b *builder) table() (*Table, error) {
	var all []span
	var parts []*part
	for _, l := range b.layers {
		spans := l.ordered()
		for i := range spans {
			spans[i].part += uint32(len(parts))
		}
		parts = append(parts, l.parts...)
		all = over(all, apart(spans))
	}
	m := &merger{parts: parts, rules: newRules(), known: map[*rules][]uint32{}}
	rows := m.rows(all)
	rows, list := limitRules(rows, m.rules.list)
	return b.encode(rows, list)
}

// apart shortens spans, in the order of their beginnings, so that none overlap.
func apart(spans []span) []span {
	kept, end := spans[:0], uint32(0)
	for _, s := range spans {
		s.start = max(s.start, end)
		if s.start < s.end {
			kept, end = append(kept, s), s.end
		}
	}
	return kept
}

// over returns spans that do not overlap, those of upper and what they leave of lower.
func over(upper, lower []span) []span {
	if len(upper) == 0 {
		return lower
	}
	if len(lower) == 0 {
		return upper
	}
	merged := make([]span, 0, len(upper)+len(lower))
	for len(lower) > 0 {
		s := &lower[0]
		switch {
		case len(upper) > 0 && upper[0].start <= s.start:
			merged = append(merged, upper[0])
			s.start = max(s.start, upper[0].end)
			upper = upper[1:]
			for len(lower) > 0 && lower[0].end <= merged[len(merged)-1].end {
				lower = lower[1:]
			}
			if len(lower) > 0 {
				lower[0].start = max(lower[0].start, merged[len(merged)-1].end)
			}
		case len(upper) > 0 && upper[0].start < s.end:
			before := *s
			before.end = upper[0].start
			merged = append(merged, before)
			s.start = upper[0].start
		default:
			merged = append(merged, *s)
			lower = lower[1:]
		}
	}
	return append(merged, upper...)
}

// merger puts the rows of spans behind one another and numbers their rules anew, in the
// order of the file: so the numbers do not depend on who made which part.
type merger struct {
	parts []*part
	rules *rules
	known map[*rules][]uint32 // new numbers of a part's rules, plus 1
	out   []row
}

func (m *merger) rows(spans []span) []row {
	n, all := len(spans), 2*len(spans)
	for i := range spans {
		n += int(spans[i].n) // parts of one that was divided have all of its rows
	}
	for _, p := range m.parts {
		all += len(p.rows)
	}
	m.out = make([]row, 0, min(n, all))
	for i := range spans {
		s := &spans[i]
		m.span(s)
		if i+1 == len(spans) || spans[i+1].start > s.end {
			m.row(s.end, 0)
		}
	}
	return m.out
}

func (m *merger) span(s *span) {
	p := m.parts[s.part]
	numbers := m.numbers(p.rules)
	rows := p.rows[s.first:][:s.n]
	before := sort.Search(len(rows), func(i int) bool { return rows[i].at > s.start })
	if before == 0 {
		m.row(s.start, 0)
	}
	for _, r := range rows[max(before-1, 0):] {
		if r.at >= s.end {
			break
		}
		n := &numbers[r.rule]
		if *n == 0 {
			*n = m.rules.number(p.rules.list[r.rule]) + 1
		}
		m.row(max(r.at, s.start), *n-1)
	}
}

func (m *merger) numbers(t *rules) []uint32 {
	numbers, ok := m.known[t]
	if !ok {
		numbers = make([]uint32, len(t.list))
		m.known[t] = numbers
	}
	return numbers
}

// row appends a row, unless its rule holds already.
func (m *merger) row(at, rule uint32) {
	if n := len(m.out); n == 0 && rule == 0 || n > 0 && m.out[n-1].rule == rule {
		return
	}
	m.out = append(m.out, row{at, rule})
}

// limitRules leaves out the rarest rules if there are more than a table can have, of
// equally rare ones those met last. Their rows say that they are unusual.
func limitRules(rows []row, list []packed) ([]row, []packed) {
	if len(list) <= maxRules {
		return rows, list
	}
	uses := make([]uint32, len(list))
	for _, r := range rows {
		uses[r.rule]++
	}
	uses[0] = math.MaxUint32
	byUse := make([]uint32, len(list))
	for i := range byUse {
		byUse[i] = uint32(i)
	}
	slices.SortFunc(byUse, func(a, b uint32) int { return cmp.Or(cmp.Compare(uses[b], uses[a]), cmp.Compare(a, b)) })
	const rare = maxRules - 1
	keep := byUse[:rare]
	slices.Sort(keep)
	kept := make([]packed, 0, maxRules)
	numbers := uses // anew
	for i := range numbers {
		numbers[i] = rare
	}
	for _, n := range keep {
		numbers[n] = uint32(len(kept))
		kept = append(kept, list[n])
	}
	unusual := Rule{Kind: None, Register: Register(Unusual)}
	kept = append(kept, unusual.pack())
	out := rows[:0]
	for _, r := range rows {
		r.rule = numbers[r.rule]
		if len(out) == 0 || out[len(out)-1].rule != r.rule {
			out = append(out, r)
		}
	}
	return out, kept
}

// encode writes the table as doc.go says.
func (b *builder) encode(rows []row, list []packed) (*Table, error) {
	var first, granules uint32
	if len(rows) > 0 {
		first = rows[0].at / granule
		end := rows[len(rows)-1]
		granules = end.at/granule - first + 1
		if end.rule == 0 && end.at%granule == 0 { // behind the last granule there is no rule anyway
			rows = rows[:len(rows)-1]
			granules--
		}
	}
	align := func(n uint64) uint64 { return (n + 7) &^ 7 }
	directory := uint64(headerSize)
	rowsAt := align(directory + 4*(uint64(granules)+1) + 2)
	ruleAt := align(rowsAt + rowSize*uint64(len(rows)))
	size := ruleAt + ruleSize*uint64(len(list))
	if size > math.MaxInt32 {
		return nil, unsupported("its table would be of 2 GiB or more")
	}
	out := make([]byte, size)
	order := binary.LittleEndian
	order.PutUint32(out, magic)
	out[4], out[5] = uint8(b.file.machine), uint8(b.flags)
	if granules > 0 {
		order.PutUint64(out[8:], uint64(b.base)+uint64(first)*granule)
	}
	for i, n := range []uint64{uint64(granules), uint64(len(rows)), uint64(len(list)), directory, rowsAt, ruleAt, size} {
		order.PutUint32(out[16+4*i:], uint32(n))
	}
	done := 0
	for g := range granules {
		order.PutUint32(out[directory+4*uint64(g):], uint32(done))
		n := 0
		for done+n < len(rows) && rows[done+n].at/granule-first == g {
			n++
		}
		block := out[rowsAt+rowSize*uint64(done):]
		for i, r := range rows[done : done+n] {
			block[i] = byte(r.at)
			order.PutUint16(block[n+2*i:], uint16(r.rule))
		}
		done += n
	}
	order.PutUint32(out[directory+4*uint64(granules):], uint32(done))
	for i := range list {
		list[i].put(out[ruleAt+ruleSize*uint64(i):])
	}
	return Parse(out)
}
