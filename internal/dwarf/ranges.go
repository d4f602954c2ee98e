package dwarf

import "hallmark/internal/cursor"

// eachRange calls f with the addresses of an entry: from DW_AT_low_pc up to
// DW_AT_high_pc, or those of a list.
func (s *state) eachRange(v *values, f func(low, high uint64)) error {
	if v.has(slotRanges) {
		return s.rangeList(v, f)
	}
	low, ok := s.address(v.get(slotLowPC))
	if !ok || !v.has(slotHighPC) {
		return nil
	}
	high, absolute := s.address(v.get(slotHighPC))
	if !absolute {
		high = low + v.raw[slotHighPC]
	}
	f(low, high)
	return nil
}

func (s *state) rangeList(v *values, f func(low, high uint64)) error {
	offset := v.raw[slotRanges]
	if s.version < 5 {
		return s.oldRangeList(offset+s.gnuRangesBase, f)
	}
	if v.form[slotRanges] == FormRnglistx {
		relative, ok := indexed(s.ranges.Rnglists, s.format, s.rnglistsBase, offset, uint32(s.offsetSize))
		if !ok {
			return s.data.fail(".debug_rnglists", s.rnglistsBase, "no list with number %d", offset)
		}
		offset = s.rnglistsBase + relative
	}
	return s.newRangeList(offset, f)
}

// oldRangeList reads a list of .debug_ranges (DWARF 4, section 2.17.3).
func (s *state) oldRangeList(offset uint64, f func(low, high uint64)) error {
	c := cursor.New(s.ranges.Ranges, 0, s.big)
	c.SeekTo(offset)
	base := s.low
	largest := uint64(1)<<(8*s.addrSize-1)<<1 - 1
	for {
		low, high := c.Word(int(s.addrSize)), c.Word(int(s.addrSize))
		switch {
		case c.Err() != nil:
			return s.data.failAfter(c.Pos()-int(offset), ".debug_ranges", offset, "list does not end")
		case low == 0 && high == 0:
			return s.data.spend(c.Pos() - int(offset))
		case low == largest:
			base = high
		case s.isBase(base):
			f(base+low, base+high)
		}
	}
}

// isBase reports whether ranges may be relative to v. Code that the linker threw away has
// another base, and could reach into code from there.
func (s *state) isBase(v uint64) bool { return v == 0 || s.root.isText(v) }

// newRangeList reads a list of .debug_rnglists (DWARF 5, section 2.17.3).
func (s *state) newRangeList(offset uint64, f func(low, high uint64)) error {
	c := cursor.New(s.ranges.Rnglists, 0, s.big)
	c.SeekTo(offset)
	list := rangeReader{state: s, c: &c}
	list.rebase(s.low)
	for {
		low, high, more := list.next()
		if c.Err() != nil {
			return s.data.failAfter(c.Pos()-int(offset), ".debug_rnglists", offset, "malformed list")
		}
		if !more {
			return s.data.spend(c.Pos() - int(offset))
		}
		f(low, high)
	}
}

// rangeReader reads a list of .debug_rnglists, entry by entry.
type rangeReader struct {
	*state
	c      *cursor.Cursor
	base   uint64
	isBase bool
}

// rebase sets what offsets are relative to.
func (r *rangeReader) rebase(v uint64) { r.base, r.isBase = v, r.state.isBase(v) }

// next returns the next range. An entry that only sets the base, or refers to an
// address that is not there, gives an empty one.
func (r *rangeReader) next() (low, high uint64, more bool) {
	switch kind := r.c.U8(); kind {
	case rleEndOfList:
		return 0, 0, false
	case rleBaseAddressx:
		base, _ := r.indexedAddress(r.c.Uvarint())
		r.rebase(base)
	case rleStartxEndx:
		low, _ = r.indexedAddress(r.c.Uvarint())
		high, _ = r.indexedAddress(r.c.Uvarint())
	case rleStartxLength:
		low, _ = r.indexedAddress(r.c.Uvarint())
		high = low + r.c.Uvarint()
	case rleOffsetPair:
		low, high = r.c.Uvarint(), r.c.Uvarint()
		if !r.isBase {
			return 0, 0, true
		}
		low, high = r.base+low, r.base+high
	case rleBaseAddress:
		r.rebase(r.c.Word(int(r.addrSize)))
	case rleStartEnd:
		low, high = r.c.Word(int(r.addrSize)), r.c.Word(int(r.addrSize))
	case rleStartLength:
		low = r.c.Word(int(r.addrSize))
		high = low + r.c.Uvarint()
	default:
		r.c.Fail("range of unknown kind %d", kind)
	}
	return low, high, true
}
