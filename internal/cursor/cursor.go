// Package cursor reads numbers and strings from bytes that cannot be trusted.
//
// A Cursor remembers its first error: after it, every read returns zero, so a
// parser reads a whole structure and asks Err once. A truncated varint is an
// error (encoding/binary and debug/dwarf decode it as a value), and no length
// that was read is ever used to allocate.
package cursor

import (
	"bytes"
	"fmt"
)

// Error is damage found in doubtful bytes.
type Error struct {
	Offset int64  // of the damage, in the coordinates of the Cursor's Base
	Msg    string // what was wrong
}

// Error returns the damage with its offset.
func (e *Error) Error() string { return fmt.Sprintf("offset %#x: %s", e.Offset, e.Msg) }

// Cursor reads from data. The zero value reads nothing; copy a Cursor to look ahead.
type Cursor struct {
	data []byte
	pos  int
	base int64
	big  bool
	err  *Error
}

// New returns a cursor over data. base is the offset of data[0] in its file and
// only serves error messages; big selects big-endian numbers.
func New(data []byte, base int64, big bool) Cursor {
	return Cursor{data: data, base: base, big: big}
}

// Err returns the first error, or nil.
func (c *Cursor) Err() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

// Fail records damage at the current position, unless there is an earlier error.
func (c *Cursor) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = &Error{Offset: c.Offset(), Msg: fmt.Sprintf(format, args...)}
	}
}

// Len returns the number of bytes left; 0 after an error.
func (c *Cursor) Len() int {
	if c.err != nil {
		return 0
	}
	return len(c.data) - c.pos
}

// Pos returns the number of bytes consumed.
func (c *Cursor) Pos() int { return c.pos }

// Offset returns the current position in file coordinates.
func (c *Cursor) Offset() int64 { return c.base + int64(c.pos) }

// Bytes returns the next n bytes, which alias the data.
func (c *Cursor) Bytes(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(len(c.data)-c.pos) {
		c.Fail("%d bytes wanted, %d left", n, len(c.data)-c.pos)
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// Skip passes over n bytes.
func (c *Cursor) Skip(n uint64) { c.Bytes(n) }

// SeekTo moves to pos, a number of bytes from the start of the data.
func (c *Cursor) SeekTo(pos uint64) {
	if c.err != nil {
		return
	}
	if pos > uint64(len(c.data)) {
		c.Fail("position %d is outside the %d bytes", pos, len(c.data))
		return
	}
	c.pos = int(pos)
}

// U8 reads one byte.
func (c *Cursor) U8() uint8 {
	if c.err == nil && c.pos < len(c.data) {
		c.pos++
		return c.data[c.pos-1]
	}
	c.Bytes(1)
	return 0
}

// U16 reads two bytes.
func (c *Cursor) U16() uint16 {
	b := c.Bytes(2)
	switch {
	case b == nil:
		return 0
	case c.big:
		return uint16(b[1]) | uint16(b[0])<<8
	default:
		return uint16(b[0]) | uint16(b[1])<<8
	}
}

// U32 reads four bytes.
func (c *Cursor) U32() uint32 {
	b := c.Bytes(4)
	switch {
	case b == nil:
		return 0
	case c.big:
		return uint32(b[3]) | uint32(b[2])<<8 | uint32(b[1])<<16 | uint32(b[0])<<24
	default:
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
}

// U64 reads eight bytes.
func (c *Cursor) U64() uint64 {
	b := c.Bytes(8)
	switch {
	case b == nil:
		return 0
	case c.big:
		return uint64(b[7]) | uint64(b[6])<<8 | uint64(b[5])<<16 | uint64(b[4])<<24 |
			uint64(b[3])<<32 | uint64(b[2])<<40 | uint64(b[1])<<48 | uint64(b[0])<<56
	default:
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	}
}

// Word reads an address-sized number: 4 or 8 bytes.
func (c *Cursor) Word(size int) uint64 {
	if size == 4 {
		return uint64(c.U32())
	}
	return c.U64()
}

// Uvarint reads an unsigned LEB128 number (DWARF 5, section 7.6) of at most 64 bits.
func (c *Cursor) Uvarint() uint64 {
	if c.err == nil && c.pos < len(c.data) && c.data[c.pos] < 0x80 {
		c.pos++
		return uint64(c.data[c.pos-1])
	}
	var n uint64
	for shift := uint(0); c.err == nil; shift += 7 {
		b := c.U8()
		if shift >= 63 && b > 1 {
			c.Fail("LEB128 number does not fit 64 bits")
			break
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 && c.err == nil {
			return n
		}
	}
	return 0
}

// Varint reads a number whose sign is zig-zag coded in an unsigned LEB128, as
// Go's pclntab has it.
func (c *Cursor) Varint() int64 {
	n := c.Uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

// String reads bytes up to a NUL, which is consumed and not returned.
func (c *Cursor) String() string { return string(c.CString()) }

// CString is String without a copy: what it returns aliases the data.
func (c *Cursor) CString() []byte {
	if c.err != nil {
		return nil
	}
	n := bytes.IndexByte(c.data[c.pos:], 0)
	if n < 0 {
		c.Fail("string is not terminated")
		return nil
	}
	s := c.data[c.pos : c.pos+n : c.pos+n]
	c.pos += n + 1
	return s
}

// Align moves forward to a multiple of n (a power of two) from the start of the
// data, at most to its end.
func (c *Cursor) Align(n int) {
	if c.err == nil {
		c.pos = min((c.pos+n-1)&^(n-1), len(c.data))
	}
}
