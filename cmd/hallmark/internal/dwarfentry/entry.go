package dwarfentry

import (
	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
)

// Attributes, tags, forms and operations that mean something here (DWARF 5, section 7).
const (
	atLocation       = 0x02
	atName           = 0x03
	atByteSize       = 0x0b
	atStmtList       = 0x10
	atLowPC          = 0x11
	atHighPC         = 0x12
	atCompDir        = 0x1b
	atLowerBound     = 0x22
	atUpperBound     = 0x2f
	atAbstractOrigin = 0x31
	atCount          = 0x37
	atDeclFile       = 0x3a
	atDeclLine       = 0x3b
	atFrameBase      = 0x40
	atSpecification  = 0x47
	atType           = 0x49
	atRanges         = 0x55
	atCallColumn     = 0x57
	atCallFile       = 0x58
	atCallLine       = 0x59
	atStrOffsetsBase = 0x72
	atAddrBase       = 0x73
	atRnglistsBase   = 0x74
	atDwoName        = 0x76
	atLoclistsBase   = 0x8c
	atLLVMTagOffset  = 0x3e03
	atGNUDwoName     = 0x2130
	atGNUDwoID       = 0x2131
	atGNURangesBase  = 0x2132
	atGNUAddrBase    = 0x2133
	atGNUDiscr       = 0x2136

	tagArray       = 0x01
	tagClass       = 0x02
	tagEnumeration = 0x04
	tagParameter   = 0x05
	tagPointer     = 0x0f
	tagReference   = 0x10
	tagString      = 0x12
	tagStructure   = 0x13
	tagSubroutine  = 0x15
	tagTypedef     = 0x16
	tagUnion       = 0x17
	tagInlined     = 0x1d
	tagPtrToMember = 0x1f
	tagSet         = 0x20
	tagSubrange    = 0x21
	tagBase        = 0x24
	tagFunction    = 0x2e
	tagVariable    = 0x34
	tagInterface   = 0x38
	tagUnspecified = 0x3b
	tagRvalue      = 0x42

	opAddr       = 0x03
	opDeref      = 0x06
	opPlusUconst = 0x23
	opReg0       = 0x50
	opReg31      = 0x6f
	opBreg0      = 0x70
	opFbreg      = 0x91
	opAddrx      = 0xa1
	opGNUAddrx   = 0xfb
)

// abbrev is the form that entries of one kind have.
type abbrev struct {
	tag        uint16
	children   bool
	attributes []attribute
}

type attribute struct {
	name, form uint16
	constant   int64 // with dwarf.FormImplicitConst
}

// abbreviations reads the abbreviations at an offset, up to damage.
func (d *data) abbreviations(off uint64) map[uint64]*abbrev {
	if known, ok := d.abbrevs[off]; ok {
		return known
	}
	table := map[uint64]*abbrev{}
	d.abbrevs[off] = table // tables have no bytes in common, unless they are made to
	c := cursor.New(d.Abbrev, 0, d.Big)
	c.SeekTo(off)
	for {
		code := c.Uvarint()
		if code == 0 || c.Err() != nil || d.left <= 0 {
			return table
		}
		d.left--
		a := &abbrev{tag: uint16(c.Uvarint()), children: c.U8() != 0}
		for {
			at := attribute{name: uint16(c.Uvarint()), form: uint16(c.Uvarint())}
			if at.form == dwarf.FormImplicitConst {
				at.constant = sleb(&c)
			}
			if at.form == 0 || c.Err() != nil {
				break
			}
			a.attributes = append(a.attributes, at)
			d.left--
		}
		if c.Err() != nil || len(a.attributes) > maxAttributes {
			return table
		}
		if _, ok := table[code]; !ok {
			table[code] = a
		}
	}
}

// A value is that of an attribute. The zero value is none.
type value struct {
	form uint16
	u    uint64 // number, offset or index
	b    []byte // block, or string that stands in the entry
}

// An entry is a tag and its attributes.
type entry struct {
	unit     *unit
	off      uint64
	next     uint64 // behind its attributes
	tag      uint16 // 0 for what ends a list of children
	children bool
	abbrev   *abbrev
	values   []value
}

// find returns the value of the first of these attributes that the entry has.
func (e *entry) find(names ...uint16) value {
	if e.abbrev != nil {
		for _, name := range names {
			for i, a := range e.abbrev.attributes {
				if a.name == name {
					return e.values[i]
				}
			}
		}
	}
	return value{}
}

// entryAt reads the entry at an offset.
func (u *unit) entryAt(off uint64) (entry, bool) { return u.readEntry(off, nil) }

// readEntry reads the entry at an offset into values.
func (u *unit) readEntry(off uint64, values []value) (entry, bool) {
	if off < u.first || off >= u.end {
		return entry{}, false
	}
	c := cursor.New(u.Info[:u.end], 0, u.Big)
	c.SeekTo(off)
	if u.abbrevs == nil {
		u.abbrevs = u.abbreviations(u.abbrevsAt)
	}
	e := entry{unit: u, off: off, values: values[:0]}
	code := c.Uvarint()
	if code != 0 {
		e.abbrev = u.abbrevs[code]
		if e.abbrev == nil {
			return entry{}, false
		}
		e.tag, e.children = e.abbrev.tag, e.abbrev.children
		u.file.budget -= 1 + len(e.abbrev.attributes)
		if u.file.budget < 0 {
			return entry{}, false
		}
		for _, a := range e.abbrev.attributes {
			v := u.value(&c, a.form, 0)
			if a.form == dwarf.FormImplicitConst {
				v.u = uint64(a.constant)
			}
			e.values = append(e.values, v)
		}
	}
	e.next = uint64(c.Pos())
	return e, c.Err() == nil
}

// value reads a value in a form.
func (u *unit) value(c *cursor.Cursor, form uint16, depth int) value {
	v := value{form: form}
	switch form {
	case dwarf.FormAddr:
		v.u = c.Word(u.addrSize)
	case dwarf.FormData1, dwarf.FormRef1, dwarf.FormFlag, dwarf.FormStrx1, dwarf.FormAddrx1:
		v.u = uint64(c.U8())
	case dwarf.FormData2, dwarf.FormRef2, dwarf.FormStrx2, dwarf.FormAddrx2:
		v.u = uint64(c.U16())
	case dwarf.FormStrx3, dwarf.FormAddrx3:
		b := c.Bytes(3)
		for i := range b {
			at := i
			if !u.Big {
				at = len(b) - 1 - i
			}
			v.u = v.u<<8 | uint64(b[at])
		}
	case dwarf.FormData4, dwarf.FormRef4, dwarf.FormStrx4, dwarf.FormAddrx4, dwarf.FormRefSup4:
		v.u = uint64(c.U32())
	case dwarf.FormData8, dwarf.FormRef8, dwarf.FormRefSig8, dwarf.FormRefSup8:
		v.u = c.U64()
	case dwarf.FormData16:
		v.b = c.Bytes(16)
	case dwarf.FormSdata:
		v.u = uint64(sleb(c))
	case dwarf.FormUdata, dwarf.FormRefUdata, dwarf.FormStrx, dwarf.FormAddrx, dwarf.FormLoclistx, dwarf.FormRnglistx, dwarf.FormGNUAddrIndex, dwarf.FormGNUStrIndex:
		v.u = c.Uvarint()
	case dwarf.FormStrp, dwarf.FormLineStrp, dwarf.FormSecOffset, dwarf.FormStrpSup, dwarf.FormGNURefAlt, dwarf.FormGNUStrpAlt:
		v.u = c.Word(u.offSize)
	case dwarf.FormRefAddr:
		size := u.offSize
		if u.version == 2 {
			size = u.addrSize
		}
		v.u = c.Word(size)
	case dwarf.FormString:
		v.b = c.CString()
	case dwarf.FormBlock1:
		v.b = c.Bytes(uint64(c.U8()))
	case dwarf.FormBlock2:
		v.b = c.Bytes(uint64(c.U16()))
	case dwarf.FormBlock4:
		v.b = c.Bytes(uint64(c.U32()))
	case dwarf.FormBlock, dwarf.FormExprloc:
		v.b = c.Bytes(c.Uvarint())
	case dwarf.FormFlagPresent:
		v.u = 1
	case dwarf.FormImplicitConst:
	case dwarf.FormIndirect:
		if real := uint16(c.Uvarint()); depth == 0 && real != dwarf.FormImplicitConst {
			return u.value(c, real, 1)
		}
		c.Fail("form within a form")
	default:
		c.Fail("form %#x", form)
	}
	return v
}

// isConstant reports whether v is a number.
func (v value) isConstant() bool {
	switch v.form {
	case dwarf.FormData1, dwarf.FormData2, dwarf.FormData4, dwarf.FormData8, dwarf.FormSdata, dwarf.FormUdata, dwarf.FormImplicitConst:
		return true
	}
	return false
}

// signed returns the number that v is. One of fixed size has no sign: compilers choose
// the smallest form for a bound of an array that is never negative but for -1.
func (v value) signed() int64 {
	all := map[uint16]uint64{dwarf.FormData4: 0xffffffff}[v.form]
	if all != 0 && v.u == all {
		return -1
	}
	return int64(v.u)
}

// expression returns the expression that v is, or nil.
func (v value) expression() []byte {
	switch v.form {
	case dwarf.FormExprloc, dwarf.FormBlock, dwarf.FormBlock1, dwarf.FormBlock2, dwarf.FormBlock4:
		return v.b
	}
	return nil
}

// stringAt returns the string at an offset of a section.
func stringAt(section []byte, off uint64) []byte {
	c := cursor.New(section, 0, false)
	c.SeekTo(off)
	s := c.CString()
	if c.Err() != nil {
		return nil
	}
	return s
}

// string returns the string that v stands for, "" for none.
func (u *unit) string(v value) string {
	s := u.bytes(v)
	u.file.budget -= len(s) / bytesOfBudget
	if u.file.budget < 0 {
		return ""
	}
	return string(s)
}

// bytes returns the string that v stands for, as it is in its section.
func (u *unit) bytes(v value) []byte {
	switch v.form {
	case dwarf.FormString:
		return v.b
	case dwarf.FormStrp:
		return stringAt(u.Str, v.u)
	case dwarf.FormLineStrp:
		return stringAt(u.LineStr, v.u)
	case dwarf.FormStrpSup, dwarf.FormGNUStrpAlt:
		if u.sup == nil {
			return nil
		}
		return stringAt(u.sup.Str, v.u)
	case dwarf.FormStrx, dwarf.FormStrx1, dwarf.FormStrx2, dwarf.FormStrx3, dwarf.FormStrx4, dwarf.FormGNUStrIndex:
		off, ok := u.indexed(u.StrOffsets, u.strBase, v.u, u.offSize)
		if !ok {
			return nil
		}
		return stringAt(u.Str, off)
	}
	return nil
}

// indexed returns a number of a table of numbers of this size.
func (u *unit) indexed(section []byte, base, index uint64, size int) (uint64, bool) {
	if index > uint64(len(section)) {
		return 0, false
	}
	c := cursor.New(section, 0, u.Big)
	c.SeekTo(base + index*uint64(size))
	n := c.Word(size)
	return n, c.Err() == nil
}

// address returns the address that v stands for.
func (u *unit) address(v value) (uint64, bool) {
	switch v.form {
	case dwarf.FormAddr:
		return v.u, true
	case dwarf.FormAddrx, dwarf.FormAddrx1, dwarf.FormAddrx2, dwarf.FormAddrx3, dwarf.FormAddrx4, dwarf.FormGNUAddrIndex:
		return u.addressAt(v.u)
	}
	return 0, false
}

func (u *unit) addressAt(index uint64) (uint64, bool) {
	return u.indexed(u.file.main.Addr, u.addrBase, index, u.addrSize)
}

// refer returns the entry that v refers to.
func (u *unit) refer(v value) (entry, bool) {
	d, off := u.data, v.u
	switch v.form {
	case dwarf.FormRef1, dwarf.FormRef2, dwarf.FormRef4, dwarf.FormRef8, dwarf.FormRefUdata:
		return u.entryAt(u.start + off)
	case dwarf.FormRefAddr:
	case dwarf.FormRefSup4, dwarf.FormRefSup8, dwarf.FormGNURefAlt:
		d = d.sup
	default:
		return entry{}, false
	}
	if d == nil {
		return entry{}, false
	}
	to := d.unitAt(off)
	if to == nil {
		return entry{}, false
	}
	return to.ready().entryAt(off)
}

// recursively returns the first of these attributes that the entry, or one that it is
// an instance or the definition of, has; and the unit that says so.
func (e *entry) recursively(names ...uint16) (value, *unit) {
	at := *e
	for range 8 {
		if v := at.find(names...); v.form != 0 {
			return v, at.unit
		}
		var ok bool
		if at, ok = at.unit.refer(at.find(atAbstractOrigin, atSpecification)); !ok {
			break
		}
	}
	return value{}, e.unit
}

// isType reports whether entries with this tag are types, whose children are no
// variables.
func isType(tag uint16) bool {
	switch tag {
	case tagArray, tagClass, tagInterface, tagEnumeration, tagPointer, tagReference, tagRvalue, tagString,
		tagStructure, tagSubroutine, tagUnion, tagPtrToMember, tagSet, tagSubrange, tagBase,
		0x26, 0x2d, 0x35, 0x37, tagTypedef, tagUnspecified, 0x40, 0x41, 0x43, 0x44, 0x46, 0x47, 0x4b:
		return true
	}
	return false
}

// sleb reads a signed LEB128 number (DWARF 5, section 7.6) of at most 64 bits.
func sleb(c *cursor.Cursor) int64 {
	var n int64
	for shift := uint(0); c.Err() == nil; shift += 7 {
		b := c.U8()
		if shift > 63 {
			c.Fail("LEB128 number does not fit 64 bits")
			break
		}
		n |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				n |= -1 << (shift + 7)
			}
			return n
		}
	}
	return 0
}
