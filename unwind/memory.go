package unwind

import (
	"encoding/binary"

	"hallmark/addr"
)

// Memory is what can be read of a process's memory.
type Memory interface {
	// ReadWord returns the 8 bytes at a, which need not be a multiple of 8, as a number
	// of the machine's byte order, and whether all of them can be read.
	ReadWord(a addr.Abs) (uint64, bool)
}

// Stack is a copy of the memory from an address on, of a little-endian machine.
type Stack struct {
	Base  addr.Abs
	Bytes []byte
	// Missing has a bit for each of the first 16 pages of 4096 bytes, from that of Base on,
	// which the copy does not have.
	Missing uint16
}

// ReadWord returns the 8 bytes at a when the copy has them.
func (s *Stack) ReadWord(a addr.Abs) (uint64, bool) {
	off := uint64(a - s.Base) // wraps around below the base, to more than there can be
	if n := uint64(len(s.Bytes)); n < 8 || off > n-8 {
		return 0, false
	}
	if s.Missing != 0 && (s.lacks(a) || s.lacks(a+7)) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(s.Bytes[off:]), true
}

// lacks reports whether the page of an address is missing.
func (s *Stack) lacks(a addr.Abs) bool {
	const page = 4096
	return s.Missing>>(a/page-s.Base/page)&1 != 0
}
