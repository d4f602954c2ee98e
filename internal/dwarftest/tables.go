package dwarftest

import (
	"slices"
)

// strings is a section of strings.
type stringSection struct {
	buffer
	places map[string]int
}

// put returns the offset of a string: of one that is there, of the end of a longer one,
// or of a new one.
func (s *stringSection) put(g *generator, text string) func() uint64 {
	at, ok := s.places[text]
	if !ok || g.oneIn(20) {
		if g.oneIn(10) {
			s.b = append(s.b, "the beginning of "...)
		}
		at = s.len()
		s.str(text)
		if s.places == nil {
			s.places = map[string]int{}
		}
		s.places[text] = at
	}
	return func() uint64 { return uint64(at) }
}

// indexTable is a contribution to .debug_str_offsets or .debug_addr: numbers that units
// refer to by index.
type indexTable struct {
	label
	object  *object
	version int
	offset  int // bytes of an offset
	numbers []func() uint64
	known   map[any]uint64
	strings *stringSection // of .debug_str_offsets
}

// index returns the index of a string or an address.
func (t *indexTable) index(g *generator, of any) uint64 {
	if i, ok := t.known[of]; ok && !g.oneIn(20) {
		return i
	}
	if t.known == nil {
		t.known = map[any]uint64{}
	}
	for range pick(g, 0, 0, 0, 1, 5) { // of others
		t.numbers = append(t.numbers, func() uint64 { return 1 })
	}
	if g.oneIn(60) {
		t.numbers = append(t.numbers, slices.Repeat([]func() uint64{func() uint64 { return 0 }}, pick(g, 300, 300, 70_000))...)
	}
	i := uint64(len(t.numbers))
	switch v := of.(type) {
	case string:
		t.numbers = append(t.numbers, t.strings.put(g, v))
	case uint64:
		t.numbers = append(t.numbers, func() uint64 { return v })
	}
	t.known[of] = i
	return i
}

// writeStrings writes the contribution to .debug_str_offsets.
func (t *indexTable) writeStrings() {
	b := &t.object.strOffsets
	done := func() {}
	if t.version >= 5 {
		done = b.length(t.offset)
		b.num(5, 2)
		b.num(0, 2)
	}
	t.at = b.len()
	for _, n := range t.numbers {
		b.num(n(), t.offset)
	}
	done()
}

// writeAddresses writes the contribution to .debug_addr.
func (t *indexTable) writeAddresses(word int) {
	b := &t.object.addr
	done := func() {}
	if t.version >= 5 {
		done = b.length(t.offset)
		b.num(5, 2)
		b.u8(word)
		b.u8(0)
	}
	t.at = b.len()
	for _, n := range t.numbers {
		b.num(n(), word)
	}
	done()
}

// listTable is a contribution to .debug_rnglists.
type listTable struct {
	label
	object  *object
	offset  int
	offsets []int // of the lists that have an index, in body
	body    buffer
	first   int // where body is
}

func (t *listTable) write(word int) {
	b := &t.object.rnglists
	done := b.length(t.offset)
	b.num(5, 2)
	b.u8(word)
	b.u8(0)
	b.num(uint64(len(t.offsets)), 4)
	t.at = b.len()
	head := len(t.offsets) * t.offset
	for _, o := range t.offsets {
		b.num(uint64(head+o), t.offset)
	}
	t.first = b.len()
	b.bytes(t.body.b)
	done()
}

// ranges returns a value of DW_AT_ranges.
func (u *unit) ranges(spans []span) *value {
	g := u.g
	if u.version < 5 {
		b := &u.skeleton.object.ranges
		at := b.len()
		u.oldList(b, spans)
		base := 0
		if u.split {
			base = u.rangesBase
		}
		return u.place(func() uint64 { return uint64(at - base) })
	}
	t := u.lists
	at := t.body.len()
	u.newList(&t.body, spans)
	if u.split || g.oneIn(2) {
		g.trait("rnglistx")
		t.offsets = append(t.offsets, at)
		return u.indirect(u.value(formRnglistx).withLEB(uint64(len(t.offsets) - 1)))
	}
	return u.place(func() uint64 { return uint64(t.first + at) })
}

// isBase reports whether a range list may be relative to the base of the unit.
func (u *unit) isBase(base uint64, s span) bool { return base <= s.low }

// selectable returns an address at or before s that a list can be relative to.
func (u *unit) selectable(s span) uint64 {
	g := u.g
	if g.oneIn(4) {
		return 0
	}
	for _, t := range g.text {
		if t.low <= s.low && s.low < t.high {
			return t.low + g.Uint64N(s.low-t.low+1)
		}
	}
	return s.low
}

// oldList writes a list of .debug_ranges.
func (u *unit) oldList(b *buffer, spans []span) {
	g := u.g
	base, known := u.base, u.hasBase
	largest := ^uint64(0) >> (64 - 8*g.word)
	for _, s := range spans {
		if !known || !u.isBase(base, s) || g.oneIn(4) {
			g.trait("base selection")
			base, known = u.selectable(s), true
			b.num(largest, g.word)
			b.num(base, g.word)
		}
		if g.oneIn(8) && s.low > base { // empty
			b.num(s.low-base, g.word)
			b.num(s.low-base, g.word)
		}
		b.num(s.low-base, g.word)
		b.num(s.high-base, g.word)
	}
	b.num(0, g.word)
	b.num(0, g.word)
}

// newList writes a list of .debug_rnglists.
func (u *unit) newList(b *buffer, spans []span) {
	g := u.g
	base, known := u.base, u.hasBase
	for _, s := range spans {
		var kinds []int
		if known && u.isBase(base, s) {
			kinds = append(kinds, 4, 4)
		}
		if u.addrx != nil {
			kinds = append(kinds, 1, 2, 3)
		}
		if !u.split {
			kinds = append(kinds, 5, 6, 7)
		}
		kind := pick(g, kinds...)
		if kind == 1 || kind == 5 {
			base, known = u.selectable(s), true
		}
		switch b.u8(kind); kind {
		case 1:
			b.uleb(u.addrx.index(g, base))
		case 2:
			b.uleb(u.addrx.index(g, s.low))
			b.uleb(u.addrx.index(g, s.high))
		case 3:
			b.uleb(u.addrx.index(g, s.low))
			b.uleb(s.high - s.low)
		case 5:
			b.num(base, g.word)
		case 6:
			b.num(s.low, g.word)
			b.num(s.high, g.word)
		case 7:
			b.num(s.low, g.word)
			b.uleb(s.high - s.low)
		}
		if kind == 1 || kind == 5 {
			b.u8(4)
		}
		if kind == 1 || kind == 5 || kind == 4 {
			b.uleb(s.low - base)
			b.uleb(s.high - base)
		}
	}
	b.u8(0)
}
