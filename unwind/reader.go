package unwind

import "encoding/binary"

// reader reads the numbers of call frame instructions. It is cursor.Cursor without
// messages: these instructions are most of what there is to read.
type reader struct {
	b   []byte
	at  int
	bad bool // something was wanted that is not there
}

func (r *reader) more() bool { return r.at < len(r.b) && !r.bad }

// take returns the next n bytes, or nil.
func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)-r.at) {
		r.bad = true
		return nil
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) skip(n uint64) { r.take(n) }

func (r *reader) u8() uint8 {
	if r.at < len(r.b) {
		r.at++
		return r.b[r.at-1]
	}
	r.bad = true
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// unsigned reads an unsigned LEB128 number, of at most 64 bits.
func (r *reader) unsigned() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 {
		r.at++
		return uint64(r.b[r.at-1])
	}
	n, b, shift := r.leb()
	if shift > 63 && b > 1 {
		r.bad = true
	}
	return n
}

// signed reads a signed LEB128 number, of at most 64 bits.
func (r *reader) signed() int64 {
	n, b, shift := r.leb()
	if shift < 64 && b&0x40 != 0 {
		n |= ^uint64(0) << shift
	}
	return int64(n)
}

// leb returns a LEB128 number's bits, its last byte and how many bits it has.
func (r *reader) leb() (n uint64, b uint8, shift uint) {
	for {
		b = r.u8()
		if shift > 63 { // ten bytes hold 64 bits
			r.bad = true
		}
		if r.bad {
			return 0, 0, 0
		}
		n |= uint64(b&0x7f) << shift
		shift += 7
		if b < 0x80 {
			return n, b, shift
		}
	}
}

// address reads a number in an encoding DW_EH_PE: as it stands there, and as it is
// meant, for a section that begins at virt.
func (r *reader) address(virt uint64, encoding uint8) (raw, value uint64) {
	if encoding == peAligned {
		r.skip(-(virt + uint64(r.at)) & 7)
	}
	at := virt + uint64(r.at)
	switch encoding & 0x0f {
	case peAbsolute, peU8, peS8, peSigned:
		raw = r.u64()
	case peU4:
		raw = uint64(r.u32())
	case peS4:
		raw = uint64(int32(r.u32()))
	case peU2:
		raw = uint64(r.u16())
	case peS2:
		raw = uint64(int16(r.u16()))
	case peULEB:
		raw = r.unsigned()
	case peSLEB:
		raw = uint64(r.signed())
	default:
		r.bad = true
	}
	if encoding&0xf0 == pePCRel {
		return raw, raw + at
	}
	return raw, raw
}
