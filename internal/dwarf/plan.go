package dwarf

import (
	"encoding/binary"
	"math"
)

// format is what the bytes of a unit's entries depend on besides the
// abbreviations. It is comparable, to be part of a key.
type format struct {
	version    uint16
	addrSize   uint8 // 4 or 8
	offsetSize uint8 // 4 or 8: 32-bit or 64-bit DWARF
	big        bool
}

// slot says where the value of an attribute that is of interest goes.
type slot uint8

const (
	slotNone slot = iota
	slotSibling
	slotName
	slotLinkageName
	slotLowPC
	slotHighPC
	slotRanges
	slotOrigin
	slotSpecification
	slotDeclLine
	slotCallFile
	slotCallLine
	slotCallColumn
	slotStmtList
	slotCompDir
	slotLanguage
	slotStrOffsetsBase
	slotAddrBase
	slotRnglistsBase
	slotGNURangesBase
	slotDwoName
	slotDwoID

	slots
)

// slotOf returns the slot of an attribute, slotNone where nobody asks for it.
func slotOf(attr uint64) slot {
	if attr < uint64(len(standardSlots)) {
		return standardSlots[attr]
	}
	switch attr {
	case atMIPSLinkageName:
		return slotLinkageName
	case atGNUAddrBase:
		return slotAddrBase
	case atGNURangesBase:
		return slotGNURangesBase
	case atGNUDwoName:
		return slotDwoName
	case atGNUDwoID:
		return slotDwoID
	default:
		return slotNone
	}
}

// standardSlots are the slots of the attributes that DWARF itself has.
var standardSlots = [0x90]slot{
	atSibling:        slotSibling,
	atName:           slotName,
	atLinkageName:    slotLinkageName,
	atLowPC:          slotLowPC,
	atHighPC:         slotHighPC,
	atRanges:         slotRanges,
	atAbstractOrigin: slotOrigin,
	atSpecification:  slotSpecification,
	atDeclLine:       slotDeclLine,
	atCallFile:       slotCallFile,
	atCallLine:       slotCallLine,
	atCallColumn:     slotCallColumn,
	atStmtList:       slotStmtList,
	atCompDir:        slotCompDir,
	atLanguage:       slotLanguage,
	atStrOffsetsBase: slotStrOffsetsBase,
	atAddrBase:       slotAddrBase,
	atRnglistsBase:   slotRnglistsBase,
	atDwoName:        slotDwoName,
}

// opKind says how many bytes a form takes.
type opKind uint8

const (
	opFixed    opKind = iota // op.size bytes
	opLEB                    // one LEB128 number
	opString                 // up to a NUL
	opBlock                  // a length of op.size bytes, and as many bytes
	opBlockLEB               // a length in LEB128, and as many bytes
	opIndirect               // a form in LEB128, and what that takes
)

// op is a step of a plan: it passes over bytes, and keeps what they say if it has
// a slot.
type op struct {
	kind  opKind
	slot  slot
	form  uint16
	size  uint32
	value int64 // of DW_FORM_implicit_const
}

// shape returns how many bytes a form takes. ok is false for an unknown form.
func (f format) shape(form uint64) (kind opKind, size uint32, ok bool) {
	switch form {
	case FormFlagPresent, FormImplicitConst:
		return opFixed, 0, true
	case FormData1, FormRef1, FormFlag, FormStrx1, FormAddrx1:
		return opFixed, 1, true
	case FormData2, FormRef2, FormStrx2, FormAddrx2:
		return opFixed, 2, true
	case FormStrx3, FormAddrx3:
		return opFixed, 3, true
	case FormData4, FormRef4, FormStrx4, FormAddrx4, FormRefSup4:
		return opFixed, 4, true
	case FormData8, FormRef8, FormRefSig8, FormRefSup8:
		return opFixed, 8, true
	case FormData16:
		return opFixed, 16, true
	case FormAddr:
		return opFixed, uint32(f.addrSize), true
	case FormStrp, FormLineStrp, FormSecOffset, FormStrpSup, FormGNURefAlt, FormGNUStrpAlt:
		return opFixed, uint32(f.offsetSize), true
	case FormRefAddr:
		if f.version <= 2 {
			return opFixed, uint32(f.addrSize), true
		}
		return opFixed, uint32(f.offsetSize), true
	default:
		return variableShape(form)
	}
}

func variableShape(form uint64) (kind opKind, size uint32, ok bool) {
	switch form {
	case FormSdata, FormUdata, FormRefUdata, FormStrx, FormAddrx, FormLoclistx, FormRnglistx,
		FormGNUAddrIndex, FormGNUStrIndex:
		return opLEB, 0, true
	case FormString:
		return opString, 0, true
	case FormBlock1:
		return opBlock, 1, true
	case FormBlock2:
		return opBlock, 2, true
	case FormBlock4:
		return opBlock, 4, true
	case FormBlock, FormExprloc:
		return opBlockLEB, 0, true
	case FormIndirect:
		return opIndirect, 0, true
	default:
		return 0, 0, false
	}
}

// fixed reads a number of n bytes, of 1, 2, 3, 4 or 8. Of longer ones it reads the
// first 8. b must have n bytes.
func (f *format) fixed(b []byte, n uint32) uint64 {
	if f.big {
		var v uint64
		for _, x := range b[:min(n, 8)] {
			v = v<<8 | uint64(x)
		}
		return v
	}
	switch n {
	case 0:
		return 0
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 3:
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8, 16:
		return binary.LittleEndian.Uint64(b)
	}
	var v uint64
	for i := int(min(n, 8)) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// values are the attributes of one entry that are of interest.
type values struct {
	set  uint32 // bits of the slots that have a value
	form [slots]uint16
	raw  [slots]uint64 // number; of DW_FORM_string its position
}

func (v *values) has(s slot) bool { return v.set>>s&1 != 0 }

// get returns the form and the value in a slot, zeros where there is none.
func (v *values) get(s slot) (form uint16, raw uint64) {
	if !v.has(s) {
		return 0, 0
	}
	return v.form[s], v.raw[s]
}

// number returns a small number, 0 where there is none.
func (v *values) number(s slot) uint32 {
	if _, raw := v.get(s); raw <= math.MaxUint32 {
		return uint32(raw)
	}
	return 0
}

// overrun is the position that says that the bytes ended within an entry.
const overrun = -1

// skip passes over what ops describe in b from p on, and returns where it ends, or
// overrun.
func (f *format) skip(b []byte, p int, ops []op) int {
	for i := range ops {
		o := &ops[i]
		switch o.kind {
		case opFixed:
			p += int(o.size)
		case opLEB:
			for p < len(b) && b[p] >= 0x80 {
				p++
			}
			p++
		case opBlockLEB:
			if p < len(b) && b[p] < 0x80 {
				p += 1 + int(b[p])
			} else {
				p = f.skipOther(b, p, o)
			}
		default:
			p = f.skipOther(b, p, o)
		}
		if uint(p) > uint(len(b)) {
			return overrun
		}
	}
	return p
}

// skipOther passes over the rarer kinds. p is within b or at its end.
func (f *format) skipOther(b []byte, p int, o *op) int {
	switch o.kind {
	case opString:
		for p < len(b) && b[p] != 0 {
			p++
		}
		return p + 1
	case opBlock:
		if len(b)-p < int(o.size) {
			return overrun
		}
		return pass(b, p+int(o.size), f.fixed(b[p:], o.size))
	case opBlockLEB:
		n, next := uleb(b, p)
		return pass(b, next, n)
	case opIndirect:
		direct, next := f.direct(b, p, o)
		if next == overrun {
			return overrun
		}
		return f.skip(b, next, []op{direct})
	default:
		return overrun
	}
}

// pass returns the position n bytes after p, or overrun.
func pass(b []byte, p int, n uint64) int {
	if p == overrun || n > uint64(len(b)-p) {
		return overrun
	}
	return p + int(n)
}

// direct reads the form that stands before a value of DW_FORM_indirect.
func (f *format) direct(b []byte, p int, o *op) (op, int) {
	form, next := uleb(b, p)
	kind, size, ok := f.shape(form)
	if next == overrun || !ok || kind == opIndirect || form == FormImplicitConst {
		return op{}, overrun
	}
	return op{kind: kind, slot: o.slot, form: uint16(form), size: size}, next
}

// read passes over what ops describe as skip does, and keeps the values that have
// a slot. The first value of a slot counts.
func (f *format) read(b []byte, p int, ops []op, v *values) int {
	v.set = 0
	for i := range ops {
		o := &ops[i]
		start := p
		switch o.kind {
		case opFixed:
			p += int(o.size)
		case opLEB:
			for p < len(b) && b[p] >= 0x80 {
				p++
			}
			p++
		case opIndirect:
			direct, next := f.direct(b, p, o)
			if next == overrun {
				return overrun
			}
			o, start = &direct, next
			p = f.skip(b, next, []op{direct})
		default:
			p = f.skipOther(b, p, o)
		}
		if uint(p) > uint(len(b)) {
			return overrun
		}
		if o.slot != slotNone && !v.has(o.slot) {
			v.set |= 1 << o.slot
			v.form[o.slot] = o.form
			v.raw[o.slot] = f.value(b, start, o)
		}
	}
	return p
}

// value returns the number that stands at p, whose bytes are known to be there.
func (f *format) value(b []byte, p int, o *op) uint64 {
	switch {
	case o.form == FormImplicitConst:
		return uint64(o.value)
	case o.form == FormFlagPresent:
		return 1
	case o.kind == opFixed:
		return f.fixed(b[p:], o.size)
	case o.form == FormSdata:
		n, _ := sleb(b, p)
		return uint64(n)
	case o.kind == opLEB:
		n, _ := uleb(b, p)
		return n
	default:
		return uint64(p)
	}
}

// uleb reads an unsigned LEB128 number at p and returns where it ends, or overrun.
// Bits beyond the 64th are lost, as in other readers.
func uleb(b []byte, p int) (uint64, int) {
	if uint(p) < uint(len(b)) && b[p] < 0x80 {
		return uint64(b[p]), p + 1
	}
	var n uint64
	for shift := uint(0); uint(p) < uint(len(b)); shift += 7 {
		x := b[p]
		p++
		n |= uint64(x&0x7f) << shift
		if x < 0x80 {
			return n, p
		}
	}
	return 0, overrun
}

// sleb reads a signed LEB128 number at p and returns where it ends, or overrun.
func sleb(b []byte, p int) (int64, int) {
	var n int64
	for shift := uint(0); uint(p) < uint(len(b)); {
		x := b[p]
		p++
		n |= int64(x&0x7f) << shift
		shift += 7
		if x < 0x80 {
			if x&0x40 != 0 && shift < 64 {
				n |= -1 << shift
			}
			return n, p
		}
	}
	return 0, overrun
}
