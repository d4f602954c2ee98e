package dwarf

import "slices"

// Sweep calls each with the units of d that can describe code, in the order of the
// file, until it returns false, and prepares d for Readers of these units. It takes
// the place of Units for whoever does not want all of them.
//
// have is called before anything of .debug_info is looked at, with the end of it: so
// the section may be there in parts, as it comes out of a compressed one.
func (d *Data) Sweep(have func(end uint64) error, each func(*Unit) (more bool)) error {
	d.open()
	d.units = nil
	if d.Sup != nil {
		d.Sup.budget = d.budget
		if err := d.Sup.readHeaders(); err != nil {
			return err
		}
	}
	size := uint64(len(d.Info))
	var units []Unit
	var beginning [maxPeek]byte
	for at := uint64(0); at < size; {
		if err := have(min(at+maxHeader, size)); err != nil {
			return err
		}
		head := beginning[:min(maxPeek, size-at)]
		if d.Peek == nil || !d.Peek(head, at) {
			head = d.Info[at:]
		}
		u, err := d.parseHeader(head, at)
		if err != nil {
			return err
		}
		if err := d.hold(unitCost, ".debug_info", at); err != nil {
			return err
		}
		units = append(units, u)
		d.units = units
		if at = u.end; !u.describesCode() {
			continue
		}
		if err := have(u.end); err != nil {
			return err
		}
		last := &units[len(units)-1]
		last.head = head[:min(uint64(len(head)), u.end-u.start)]
		more := each(last)
		if last.head = nil; !more || d.isSpent() {
			return nil
		}
	}
	return nil
}

// maxPeek is how much of a unit is looked at to see what it has: its header and, mostly,
// its own entry.
const maxPeek = 256

// maxHeader is at least the size of a unit header.
const maxHeader = 64

// describesCode reports whether the unit is of a kind that can have code.
func (u *Unit) describesCode() bool {
	switch u.kind {
	case UnitCompile, UnitPartial, UnitSkeleton:
		return true
	default:
		return false
	}
}

// End returns where in .debug_info the unit ends.
func (u *Unit) End() uint64 { return u.end }

// claims returns the addresses that a unit's own entry says the unit has, and false
// where it does not say. It is a fraction of the work of reading the unit, and reads no
// more of the abbreviations than it must: they are several megabytes in a kernel.
func (r *Reader) claims(u *Unit, ranges []Range) ([]Range, bool) {
	v := &r.values
	if u.head == nil || !r.ownEntry(u, u.head, u.die-u.start) {
		if !r.ownEntry(u, u.data.Info[:u.end], u.die) {
			return ranges, false
		}
	}
	s := state{Unit: u, root: r.main, addrs: u.data, ranges: u.data}
	s.bases(v, nil)
	s.gnuRangesBase = 0 // is about the entries that were split off, not this one
	s.low, _ = s.address(v.get(slotLowPC))
	start := len(ranges)
	err := s.eachRange(v, func(low, high uint64) {
		if low < high {
			ranges = append(ranges, Range{low, high})
		}
	})
	if err != nil {
		return ranges[:start], false
	}
	return ranges, v.has(slotRanges) || v.has(slotHighPC)
}

// ownEntry reads the numbers of a unit's own entry, which is at p in b, into r.values.
func (r *Reader) ownEntry(u *Unit, b []byte, at uint64) bool {
	code, p := uleb(b, int(at))
	a, ok := r.tables.find(u, code)
	return p != overrun && ok && u.read(b, p, a.read, &r.values) != overrun
}

// brief returns what state does, but that no entries of the unit besides its own can be
// read by it.
func (r *Reader) brief(u *Unit) (*state, error) {
	code, _ := uleb(u.data.Info[:u.end], int(u.die))
	a, ok := r.tables.find(u, code)
	if !ok {
		return r.state(u, nil)
	}
	return r.stateBy(u, nil, &table{sparse: map[uint64]*abbrev{code: &a}})
}

// RefersOut reports whether entries of a unit may refer to other units of the same file
// for the name of a function. Then a Reader needs all units, as after Units.
func (r *Reader) RefersOut(u *Unit) bool {
	t, err := r.tables.get(u.data, u.abbrevOffset, u.format)
	if err != nil {
		return true // which reading the unit will show
	}
	return slices.ContainsFunc(t.ops, func(o op) bool {
		return (o.slot == slotOrigin || o.slot == slotSpecification) && (o.form == FormRefAddr || o.form == FormIndirect)
	})
}

// find returns the abbreviation of a unit that has a code, and reads those before it
// only as far as it takes to pass over them. Units may share a table, so this counts as work
// each time.
func (c *tables) find(u *Unit, code uint64) (abbrev, bool) {
	b := u.data.Abbrev
	if u.abbrevOffset > uint64(len(b)) || code == 0 || u.data.isSpent() {
		return abbrev{}, false
	}
	c.shapes.make(u.format)
	p := int(u.abbrevOffset)
	defer func() {
		if p == overrun {
			p = len(b)
		}
		u.data.spend(p - int(u.abbrevOffset)) // who reads on sees that nothing is left
	}()
	for {
		found, next := uleb(b, p)
		switch {
		case next == overrun || found == 0:
			return abbrev{}, false
		case found == code:
			a, end := c.abbrev(b, next, u.format)
			if end == overrun || !a.readable() {
				return abbrev{}, false
			}
			new(table).plan(&a, c.attrs)
			return a, true
		}
		if p = passAbbrev(b, next); p == overrun {
			return abbrev{}, false
		}
	}
}

// passAbbrev returns where the declaration that is at p, behind its code, ends.
func passAbbrev(b []byte, p int) int {
	_, p = uleb(b, p)
	if p == overrun || p >= len(b) {
		return overrun
	}
	for p++; p+2 <= len(b); {
		attr, form := uint64(b[p]), uint64(b[p+1])
		if attr|form < 0x80 { // one byte each, as nearly all
			p += 2
		} else {
			if attr, p = uleb(b, p); p == overrun {
				return overrun
			}
			if form, p = uleb(b, p); p == overrun {
				return overrun
			}
		}
		if form == FormImplicitConst {
			if _, p = uleb(b, p); p == overrun {
				return overrun
			}
		}
		if attr|form == 0 {
			return p
		}
	}
	return overrun
}
