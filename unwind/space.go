package unwind

import (
	"encoding/binary"

	"hallmark/addr"
)

// Space says what lies where in a process.
type Space interface {
	// At returns the mapping that a lies in. When it lies in none it reports false.
	At(a addr.Abs) (Mapping, bool)
}

// Content is what a mapping shows.
type Content uint8

// The contents.
const (
	// File is code of a file, or of the vdso, whose unwinding Mapping.Table says.
	File Content = iota
	// Generated is executable memory without a file: compilers that write into memory
	// keep frame pointers, or are not unwound.
	Generated
	// Data is not executable.
	Data
	// Unidentified is a file of which it is not sure what was mapped.
	Unidentified
)

// Mapping is a part of an address space.
type Mapping struct {
	Start, End addr.Abs
	Offset     addr.Offset // of Start, in the file
	Content    Content
	// Table is nil when it is not there yet. One without rows is that of a file without
	// any unwind information, whose code is taken to keep frame pointers.
	Table *Table
}

// holds reports whether a lies in m.
func (m *Mapping) holds(a addr.Abs) bool { return a >= m.Start && a < m.End }

// keepsFP reports whether the code in m for which there is no rule keeps frame pointers.
func (m *Mapping) keepsFP() bool {
	return m.Content == Generated || m.Table != nil && (m.Table.rows == 0 || m.Table.Flags()&GapsKeepFP != 0)
}

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
