package dwarfentry

import (
	"slices"

	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
)

// A scope is a function or an inlined call with code.
type scope struct {
	off    uint64 // of its entry
	parent int32  // scope that it is in, -1 for none
	isCall bool   // inlined
	ranges []dwarf.Range
}

// walk calls visit with each entry of a unit and its depth, until that returns false.
// Children of types are passed over if skipTypes is set. Entries behind damage are left out.
func (u *unit) walk(from uint64, skipTypes bool, visit func(e *entry, depth int) bool) {
	var values [64]value
	depth, skip := 0, -1
	for off := from; depth >= 0 && off < u.end; {
		e, ok := u.readEntry(off, values[:0])
		if !ok {
			return
		}
		off = e.next
		if e.tag == 0 {
			depth--
			if depth == skip {
				skip = -1
			}
			if depth == 0 {
				return
			}
			continue
		}
		if skip < 0 {
			if !visit(&e, depth) {
				return
			}
			if skipTypes && e.children && isType(e.tag) {
				skip = depth
			}
		}
		if e.children {
			depth++
		} else if depth == 0 {
			return
		}
	}
}

// known returns the scopes of a unit, in the order of its entries.
func (u *unit) known() []scope {
	if u.isScopesKnown {
		return u.scopes
	}
	u.isScopesKnown = true
	left := len(u.Info) + len(u.Rnglists) + len(u.file.main.Ranges)
	type open struct {
		depth int
		scope int32
	}
	var stack []open
	u.walk(u.first, true, func(e *entry, depth int) bool {
		for len(stack) > 0 && stack[len(stack)-1].depth >= depth {
			stack = stack[:len(stack)-1]
		}
		if e.tag != tagFunction && e.tag != tagInlined {
			return true
		}
		s := scope{off: e.off, parent: -1, isCall: e.tag == tagInlined, ranges: u.rangesOf(e, &left)}
		if e.tag == tagInlined && len(stack) > 0 {
			s.parent = stack[len(stack)-1].scope
		}
		u.scopes = append(u.scopes, s)
		stack = append(stack, open{depth, int32(len(u.scopes) - 1)})
		return true
	})
	return u.scopes
}

// rangesOf returns the addresses that an entry has, those of code of the file, as far as
// so many ranges may be kept: lists have no bytes in common, unless they are made to.
func (u *unit) rangesOf(e *entry, left *int) []dwarf.Range {
	var ranges []dwarf.Range
	add := func(r dwarf.Range) {
		if *left > 0 && u.contains(r) {
			ranges = append(ranges, r)
			*left--
		}
	}
	if low, ok := u.address(e.find(atLowPC)); ok {
		if high := e.find(atHighPC); high.form != 0 {
			end, isAddress := u.address(high)
			if !isAddress {
				end = low + high.u
			}
			add(dwarf.Range{Low: low, High: end})
		}
	}
	v := e.find(atRanges)
	switch {
	case v.form == 0:
	case u.version >= 5:
		u.rnglist(v, add)
	default:
		u.rangeList(v, add)
	}
	return ranges
}

// rangeList reads a list of .debug_ranges.
func (u *unit) rangeList(v value, add func(dwarf.Range)) {
	off := v.u
	if s := u.skeleton; s != u {
		off += s.rnglistsBase
	}
	c := cursor.New(u.file.main.sectionsOf(u).Ranges, 0, u.Big)
	c.SeekTo(off)
	base, all := u.low, ^uint64(0)>>(64-8*u.addrSize)
	for u.spend() {
		low, high := c.Word(u.addrSize), c.Word(u.addrSize)
		switch {
		case c.Err() != nil || low == 0 && high == 0:
			return
		case low == all:
			base = high
		default:
			add(dwarf.Range{Low: base + low, High: base + high})
		}
	}
}

// sectionsOf returns the sections with the ranges of a unit: a unit that was split off
// leaves them behind before DWARF 5.
func (d *data) sectionsOf(u *unit) *data {
	if u.skeleton != u {
		return u.skeleton.data
	}
	return u.data
}

// spend reports whether the question may go on.
func (u *unit) spend() bool {
	u.file.budget--
	return u.file.budget >= 0
}

// Kinds of entries in .debug_rnglists and .debug_loclists, the same in both up to 4.
const (
	listEnd          = 0
	listBasex        = 1
	listStartxEndx   = 2
	listStartxLength = 3
	listOffsetPair   = 4
	rngBase          = 5
	rngStartEnd      = 6
	rngStartLength   = 7
	locDefault       = 5
	locBase          = 6
	locStartEnd      = 7
	locStartLength   = 8
)

// rnglist reads a list of .debug_rnglists.
func (u *unit) rnglist(v value, add func(dwarf.Range)) {
	off := v.u
	if v.form == dwarf.FormRnglistx {
		rel, ok := u.indexed(u.Rnglists, u.rnglistsBase, v.u, u.offSize)
		if !ok {
			return
		}
		off = u.rnglistsBase + rel
	}
	c := cursor.New(u.Rnglists, 0, u.Big)
	c.SeekTo(off)
	base := u.low
	for c.Err() == nil && u.spend() {
		var r dwarf.Range
		switch c.U8() {
		case listEnd:
			return
		case listBasex:
			base, _ = u.addressAt(c.Uvarint())
			continue
		case listStartxEndx:
			r.Low, _ = u.addressAt(c.Uvarint())
			r.High, _ = u.addressAt(c.Uvarint())
		case listStartxLength:
			r.Low, _ = u.addressAt(c.Uvarint())
			r.High = r.Low + c.Uvarint()
		case listOffsetPair:
			r.Low = base + c.Uvarint()
			r.High = base + c.Uvarint()
		case rngBase:
			base = c.Word(u.addrSize)
			continue
		case rngStartEnd:
			r.Low, r.High = c.Word(u.addrSize), c.Word(u.addrSize)
		case rngStartLength:
			r.Low = c.Word(u.addrSize)
			r.High = r.Low + c.Uvarint()
		default:
			return
		}
		if c.Err() == nil {
			add(r)
		}
	}
}

// expressions calls visit with each expression of a location, until that returns false.
func (u *unit) expressions(v value, visit func([]byte) bool) {
	if x := v.expression(); x != nil {
		visit(x)
		return
	}
	switch {
	case v.form != dwarf.FormSecOffset && v.form != dwarf.FormLoclistx && v.form != dwarf.FormData4 && v.form != dwarf.FormData8:
	case u.version >= 5:
		u.loclist(v, visit)
	default:
		u.locationList(v, visit)
	}
}

// locationList reads a list of .debug_loc.
func (u *unit) locationList(v value, visit func([]byte) bool) {
	c := cursor.New(u.Loc, 0, u.Big)
	c.SeekTo(v.u)
	all := ^uint64(0) >> (64 - 8*u.addrSize)
	for u.spend() {
		low, high := c.Word(u.addrSize), c.Word(u.addrSize)
		if c.Err() != nil || low == 0 && high == 0 {
			return
		}
		if low == all {
			continue
		}
		if x := c.Bytes(uint64(c.U16())); c.Err() != nil || !visit(x) {
			return
		}
	}
}

// loclist reads a list of .debug_loclists.
func (u *unit) loclist(v value, visit func([]byte) bool) {
	off := v.u
	if v.form == dwarf.FormLoclistx {
		base := u.root.find(atLoclistsBase).u
		rel, ok := u.indexed(u.Loclists, base, v.u, u.offSize)
		if !ok {
			return
		}
		off = base + rel
	}
	c := cursor.New(u.Loclists, 0, u.Big)
	c.SeekTo(off)
	for c.Err() == nil && u.spend() {
		switch c.U8() {
		case listEnd:
			return
		case listBasex:
			c.Uvarint()
			continue
		case listStartxEndx, listStartxLength, listOffsetPair:
			c.Uvarint()
			c.Uvarint()
		case locDefault:
		case locBase:
			c.Word(u.addrSize)
			continue
		case locStartEnd:
			c.Word(u.addrSize)
			c.Word(u.addrSize)
		case locStartLength:
			c.Word(u.addrSize)
			c.Uvarint()
		default:
			return
		}
		if x := c.Bytes(c.Uvarint()); c.Err() != nil || !visit(x) {
			return
		}
	}
}

// claims reports whether a unit says that it has code at an address. One that says
// nothing of itself is asked for its functions.
func (u *unit) claims(v uint64) bool {
	u.ready()
	if u.kind == dwarf.UnitType || u.kind == dwarf.UnitSplitType || u.kind == dwarf.UnitPartial {
		return false
	}
	if u.ranges == nil {
		u.ranges = u.rangesOf(&u.root, &u.file.ranges)
	}
	if len(u.ranges) == 0 {
		return u.full().innermost(v) >= 0
	}
	return slices.ContainsFunc(u.ranges, func(r dwarf.Range) bool { return r.Low <= v && v < r.High })
}

// innermost returns the scope that an address belongs to: the last one in the unit that
// claims it; or -1.
func (u *unit) innermost(v uint64) int32 {
	scopes := u.known()
	for i := len(scopes) - 1; i >= 0; i-- {
		for _, r := range scopes[i].ranges {
			if r.Low <= v && v < r.High {
				return int32(i)
			}
		}
	}
	return -1
}

// unitOf returns the unit that has code at an address.
func (f *File) unitOf(v uint64) *unit {
	for i, u := range f.recent {
		if u.claims(v) {
			copy(f.recent[1:], f.recent[:i])
			f.recent[0] = u
			return u
		}
	}
	for _, u := range f.main.all() {
		if !u.claims(v) {
			continue
		}
		f.recent = slices.Insert(f.recent, 0, u)
		if len(f.recent) > maxRecent {
			f.recent[maxRecent].forget()
			f.recent = f.recent[:maxRecent]
		}
		return u
	}
	return nil
}

// forget drops what is large. It is read again when it is needed.
func (u *unit) forget() {
	u.table, u.own.table = nil, nil
	u.own.scopes, u.own.isScopesKnown = nil, false
}
