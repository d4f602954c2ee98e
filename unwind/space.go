package unwind

import "hallmark/addr"

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
