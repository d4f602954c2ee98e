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
}

// ReadWord returns the 8 bytes at a when the copy has them.
func (s *Stack) ReadWord(a addr.Abs) (uint64, bool) {
	off := uint64(a - s.Base) // wraps around below the base, to more than there can be
	if n := uint64(len(s.Bytes)); n < 8 || off > n-8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(s.Bytes[off:]), true
}
