package dwarf

import "hallmark/internal/cursor"

// A Unit is a header in .debug_info: a compilation, or a part of one.
type Unit struct {
	format
	data         *Data
	start, end   uint64 // offsets in .debug_info
	die          uint64 // offset of the unit's entry
	kind         uint8
	abbrevOffset uint64
	id           uint64 // of a skeleton or of what was split off, if the header has it
	sharesTable  bool   // of abbreviations, with a unit before it
	head         []byte // its first bytes, while Sweep is at it; or nil
}

// Size returns the bytes of the unit, which say how long reading it takes.
func (u *Unit) Size() int { return int(u.end - u.start) }

// Offset returns where in .debug_info the unit is.
func (u *Unit) Offset() uint64 { return u.start }

// Units returns the units of d that can describe code, in the order of the file,
// and prepares d for Readers. It must be called first.
func (d *Data) Units() ([]*Unit, error) {
	d.open()
	if err := d.readHeaders(); err != nil {
		return nil, err
	}
	if d.Sup != nil {
		d.Sup.budget = d.budget
		if err := d.Sup.readHeaders(); err != nil {
			return nil, err
		}
	}
	return d.codeUnits(), nil
}

// codeUnits returns the units that can describe code.
func (d *Data) codeUnits() (units []*Unit) {
	for i := range d.units {
		if d.units[i].describesCode() {
			units = append(units, &d.units[i])
		}
	}
	return units
}

func (d *Data) readHeaders() error {
	d.units = nil
	tables := map[uint64]bool{}
	for at := 0; at < len(d.Info); {
		u, err := d.readHeader(uint64(at))
		if err != nil {
			return err
		}
		if u.end != u.start {
			u.sharesTable = tables[u.abbrevOffset]
			tables[u.abbrevOffset] = true
			if err := d.hold(unitCost, ".debug_info", uint64(at)); err != nil {
				return err
			}
			d.units = append(d.units, u)
		}
		at = int(u.end)
		if u.end == u.start {
			break
		}
	}
	return nil
}

// readHeader reads the header of the unit at an offset.
func (d *Data) readHeader(at uint64) (Unit, error) { return d.parseHeader(d.Info[at:], at) }

// parseHeader reads a unit header (DWARF 5, section 7.5.1) from b, the bytes at its
// offset, which need not be all of the unit.
func (d *Data) parseHeader(b []byte, at uint64) (Unit, error) {
	c := cursor.New(b, 0, d.Big)
	u := Unit{data: d, start: at, kind: UnitCompile, format: format{offsetSize: 4, big: d.Big}}
	length := uint64(c.U32())
	if length == 0xffffffff {
		u.offsetSize = 8
		length = c.U64()
	}
	start := at + uint64(c.Pos())
	if left := uint64(len(d.Info)) - start; length > left {
		return u, d.fail(".debug_info", at, "unit of %#x bytes, %#x left", length, left)
	}
	u.end = start + length
	u.version = c.U16()
	switch {
	case u.version >= 2 && u.version <= 4:
		u.abbrevOffset = c.Word(int(u.offsetSize))
		u.addrSize = c.U8()
	case u.version == 5:
		u.kind, u.addrSize = c.U8(), c.U8()
		u.abbrevOffset = c.Word(int(u.offsetSize))
		switch u.kind {
		case UnitSkeleton, UnitSplitCompile:
			u.id = c.U64()
		case UnitType, UnitSplitType:
			c.U64()
			c.Word(int(u.offsetSize))
		}
	default:
		u.kind = 0 // of a version to come: passed over
	}
	u.die = at + uint64(c.Pos())
	if c.Err() != nil || u.die > u.end {
		return u, d.fail(".debug_info", at, "unit is too short for its header")
	}
	if u.kind != 0 && u.addrSize != 4 && u.addrSize != 8 {
		return u, d.fail(".debug_info", at, "addresses of %d bytes", u.addrSize)
	}
	return u, nil
}

// state is what a unit's own entry says: where the tables are that its other
// entries refer to.
type state struct {
	*Unit
	root    *Data // the file whose code it describes
	table   *table
	partial bool

	lang     uint64
	dir      []byte // DW_AT_comp_dir
	low      uint64 // what range lists are relative to
	lines    uint64 // offset of the line program
	hasLines bool

	strBase       uint64
	addrs, ranges *Data // whose .debug_addr and range lists are meant
	addrBase      uint64
	rnglistsBase  uint64
	gnuRangesBase uint64

	dwoName []byte
	dwoID   uint64
}

// state reads a unit's own entry. Where the unit was split off, skeleton is what
// the unit that stayed says, and else nil.
func (r *Reader) state(u *Unit, skeleton *state) (*state, error) {
	t, err := r.tables.get(u.data, u.abbrevOffset, u.format)
	if err != nil {
		return nil, err
	}
	return r.stateBy(u, skeleton, t)
}

// ownState returns the state of the unit that is being read, which is of use until
// the next one is.
func (r *Reader) ownState(u *Unit) (*state, error) {
	if u.sharesTable {
		return r.state(u, nil)
	}
	t, err := r.tables.getOwn(u.data, u.abbrevOffset, u.format)
	if err != nil {
		return nil, err
	}
	return r.stateBy(u, nil, t)
}

// stateBy reads a unit's own entry by its abbreviations.
func (r *Reader) stateBy(u *Unit, skeleton *state, t *table) (*state, error) {
	s := &state{Unit: u, root: r.main, table: t, addrs: u.data, ranges: u.data}
	var v values
	a, err := s.entry(u.die, &v)
	if err != nil {
		return nil, err
	}
	s.partial = a != nil && a.tag == tagPartialUnit // before DWARF 5 the header does not say so
	s.bases(&v, skeleton)
	_, s.lang = v.get(slotLanguage)
	s.dir, s.dwoName = s.str(&v, slotCompDir).Bytes(), s.str(&v, slotDwoName).Bytes()
	s.dwoID = u.id
	if v.has(slotDwoID) {
		s.dwoID = v.raw[slotDwoID]
	}
	_, s.lines = v.get(slotStmtList)
	s.hasLines = v.has(slotStmtList)
	s.low, _ = s.address(v.get(slotLowPC))
	if skeleton != nil {
		s.low, s.lines, s.hasLines, s.dir = skeleton.low, skeleton.lines, skeleton.hasLines, skeleton.dir
	}
	return s, nil
}

// bases sets what the unit's indices are relative to. A table starts with a
// header; a unit that does not say so means what follows the first one.
func (s *state) bases(v *values, skeleton *state) {
	header := uint64(8)
	if s.offsetSize == 8 {
		header = 16
	}
	if s.version >= 5 {
		s.strBase, s.addrBase, s.rnglistsBase = header, header, header+4
	}
	set := func(base *uint64, slot slot) {
		if v.has(slot) {
			*base = v.raw[slot]
		}
	}
	set(&s.strBase, slotStrOffsetsBase)
	set(&s.addrBase, slotAddrBase)
	set(&s.rnglistsBase, slotRnglistsBase)
	set(&s.gnuRangesBase, slotGNURangesBase)
	if skeleton == nil {
		return
	}
	s.addrs, s.addrBase = skeleton.addrs, skeleton.addrBase
	if s.version < 5 {
		s.ranges, s.gnuRangesBase = skeleton.ranges, skeleton.gnuRangesBase
	}
}

// entry reads the entry at an offset of .debug_info, which must be within the unit.
// The abbreviation is nil for the null entry.
func (s *state) entry(offset uint64, v *values) (*abbrev, error) {
	b := s.data.Info[:s.end]
	code, p := uleb(b, int(offset))
	if p == overrun {
		return nil, s.fail(offset, "entry does not end")
	}
	if code == 0 {
		v.set = 0
		return nil, nil
	}
	a := s.table.lookup(code)
	if a == nil {
		return nil, s.fail(offset, "abbreviation %d is unknown", code)
	}
	if s.read(b, p, a.read, v) == overrun {
		return nil, s.fail(offset, "entry does not end")
	}
	return a, nil
}

func (s *state) fail(offset uint64, format string, args ...any) error {
	return s.data.fail(".debug_info", offset, format, args...)
}

// str returns the string in a slot.
func (s *state) str(v *values, at slot) String {
	form, raw := v.get(at)
	switch form {
	case FormString:
		return stringAt(s.data.Info[:s.end], raw)
	case FormStrp:
		return stringAt(s.data.Str, raw)
	case FormLineStrp:
		return stringAt(s.data.LineStr, raw)
	case FormStrpSup, FormGNUStrpAlt:
		if s.data.Sup == nil {
			return String{}
		}
		return stringAt(s.data.Sup.Str, raw)
	case FormStrx, FormStrx1, FormStrx2, FormStrx3, FormStrx4, FormGNUStrIndex:
		offset, ok := indexed(s.data.StrOffsets, s.format, s.strBase, raw, uint32(s.offsetSize))
		if !ok {
			return String{}
		}
		return stringAt(s.data.Str, offset)
	default:
		return String{}
	}
}

// address returns the address that an attribute has.
func (s *state) address(form uint16, raw uint64) (uint64, bool) {
	switch form {
	case FormAddr:
		return raw, true
	case FormAddrx, FormAddrx1, FormAddrx2, FormAddrx3, FormAddrx4, FormGNUAddrIndex:
		return s.indexedAddress(raw)
	default:
		return 0, false
	}
}

func (s *state) indexedAddress(index uint64) (uint64, bool) {
	return indexed(s.addrs.Addr, s.format, s.addrBase, index, uint32(s.addrSize))
}

// indexed returns a number of a table in b that starts at base.
func indexed(b []byte, f format, base, index uint64, size uint32) (uint64, bool) {
	if base > uint64(len(b)) || index >= (uint64(len(b))-base)/uint64(size) {
		return 0, false
	}
	return f.fixed(b[base+index*uint64(size):], size), true
}

// reference returns the place that an attribute refers to: an offset in the
// .debug_info of a Data.
func (s *state) reference(form uint16, raw uint64) (*Data, uint64, bool) {
	switch form {
	case FormRef1, FormRef2, FormRef4, FormRef8, FormRefUdata:
		return s.data, s.start + raw, raw < s.end-s.start
	case FormRefAddr:
		return s.data, raw, true
	case FormRefSup4, FormRefSup8, FormGNURefAlt:
		return s.data.Sup, raw, s.data.Sup != nil
	default:
		return nil, 0, false
	}
}
