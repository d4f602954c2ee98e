// Package elffile reads ELF files, on disk and in memory: headers, sections and what they hold,
// decompressed and relocated, entries of symbol tables, and a file as the dynamic loader leaves it.
// It believes nothing: what is read is bounded by what the file holds, and an error has the name of
// the file and the offset of the damage.
package elffile

import (
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// An Image is an ELF file's headers and the way to its contents.
type Image struct {
	Reader      io.ReaderAt
	Name        string // for messages; "" leaves it out
	budget      budget
	Big         bool
	Is64        bool
	Machine     uint16
	Arm         bool // 32-bit Arm, whose symbol values mark Thumb code
	Relocatable bool // a relocatable file, whose sections were laid out here
	Entry       addr.Virt
	Segments    []Segment // PT_LOAD, in the order of the file
	Sections    []Section

	EHFrameHeader Segment   // PT_GNU_EH_FRAME, where .eh_frame_hdr is; zero without
	dynamic       Segment   // PT_DYNAMIC; zero without
	notes         []Segment // PT_NOTE

	// Headerless says that the file has no section headers: Sections are made of its segments and of what
	// PT_DYNAMIC leads to, and have no names. DynamicErr is the damage that left out some of the latter.
	Headerless bool
	DynamicErr error

	Program    *Image // that a debug file was made from; nil for others, or where it is not known
	readingOPD sync.Once
	opd        *descriptors // nil before, and where there are none
}

// Disjoint returns the sections of this type with these flags, except those that
// overlap an earlier one: so no byte of the file is read twice, however many
// sections claim it.
func (m *Image) Disjoint(typ uint32, flags uint64) []*Section {
	var found []*Section
	end := uint64(0)
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.Type == typ && s.Flags&flags == flags && s.Offset >= end {
			found = append(found, s)
			end = s.Offset + s.Size
		}
	}
	return found
}

// SectionAt returns the section that holds the n bytes of memory at v, with
// contents in the file.
func (m *Image) SectionAt(v, n uint64) *Section {
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.Flags&SHF_ALLOC != 0 && s.Type != SHT_NOBITS && s.Contains(v) && n <= s.Addr+s.Size-v {
			return s
		}
	}
	return nil
}

// IsText reports whether all addresses from start up to end are in one section of
// code.
func (m *Image) IsText(start, end uint64) bool {
	return slices.ContainsFunc(m.Sections, func(s Section) bool {
		return s.IsText() && s.Contains(start) && start <= end && end-s.Addr <= s.Size
	})
}

// HasCode reports whether the file holds the code that its headers speak of. A debug file does
// not: tools that split files leave no bytes to its segments, or as elfutils none to the sections.
func (m *Image) HasCode() bool {
	without := false // a section of code has no bytes
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.IsText() && s.Size > 0 && s.Type != SHT_NOBITS {
			without = false
			break
		}
		without = without || s.IsText() && s.Size > 0
	}
	return !without && slices.ContainsFunc(m.Segments, func(s Segment) bool { return s.Executable() && s.FileSize > 0 })
}

// Section returns the first section with this name and contents in the file.
func (m *Image) Section(name string) *Section {
	for i := range m.Sections {
		if s := &m.Sections[i]; s.Name == name && s.Type != SHT_NOBITS && s.Size != 0 {
			return s
		}
	}
	return nil
}

// SectionOfType returns the first section of this type.
func (m *Image) SectionOfType(typ uint32) *Section {
	for i := range m.Sections {
		if s := &m.Sections[i]; s.Type == typ && s.Size != 0 {
			return s
		}
	}
	return nil
}

// Size returns what a structure measures in this file's class.
func (m *Image) Size(in32, in64 uint64) uint64 {
	if m.Is64 {
		return in64
	}
	return in32
}

// Word reads an address-sized number.
func (m *Image) Word(c *cursor.Cursor) uint64 { return c.Word(int(m.Size(4, 8))) }

// Cursor returns a cursor over data, which are at off in the file.
func (m *Image) Cursor(data []byte, off uint64) cursor.Cursor {
	return cursor.New(data, int64(off), m.Big)
}

// entries reads a table of count entries, each stride bytes long, of which the
// first size are understood.
func (m *Image) entries(off, count, stride, size uint64) (cursor.Cursor, error) {
	if count > maxHeaders || stride < size {
		return cursor.Cursor{}, m.Fail(off, "table of implausible shape")
	}
	data, err := m.Read(off, count*stride)
	return m.Cursor(data, off), err
}

// EachEntry calls f with a cursor at each entry of a section, of size bytes; f must
// read all of it. The section is never in memory as a whole.
func (m *Image) EachEntry(s *Section, size uint64, f func(*cursor.Cursor)) error {
	if err := m.take(s.Offset, s.Size); err != nil {
		return err
	}
	total := s.Size / size * size
	chunk := make([]byte, min(total, size<<12))
	for done := uint64(0); done < total; done += uint64(len(chunk)) {
		chunk = chunk[:min(total-done, uint64(len(chunk)))]
		if err := m.ReadAt(chunk, s.Offset+done); err != nil {
			return err
		}
		c := m.Cursor(chunk, s.Offset+done)
		for c.Len() > 0 {
			f(&c)
		}
	}
	return nil
}

// Read returns n bytes at off.
func (m *Image) Read(off, n uint64) ([]byte, error) {
	if err := m.take(off, n); err != nil {
		return nil, err
	}
	data := make([]byte, n)
	return data, m.ReadAt(data, off)
}

// ReadString returns n bytes at off. Tables of names are kept as strings, so
// that every name is a part of one and costs nothing.
func (m *Image) ReadString(off, n uint64) (string, error) {
	if err := m.take(off, n); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(int(n))
	chunk := make([]byte, min(n, 64<<10))
	for done := uint64(0); done < n; {
		part := chunk[:min(n-done, uint64(len(chunk)))]
		if err := m.ReadAt(part, off+done); err != nil {
			return "", err
		}
		b.Write(part)
		done += uint64(len(part))
	}
	return b.String(), nil
}

// Check reports whether n bytes at off can be a table in memory.
func (m *Image) Check(off, n uint64) error {
	if n > MaxTable {
		return m.Fail(off, "table is too large")
	}
	if err := m.checkEnd(off, n); err != nil {
		return err
	}
	return m.allow(off, n)
}

// take does what check does, for what is read now.
func (m *Image) take(off, n uint64) error {
	if err := m.Check(off, n); err != nil {
		return err
	}
	return m.spend(off, n)
}

// checkEnd reports whether n bytes at off are in the file, by asking for the last
// of them: a length that the file does not have allocates nothing.
func (m *Image) checkEnd(off, n uint64) error {
	switch {
	case n == 0:
		return nil
	case off > math.MaxInt64-n:
		return m.Fail(off, "table is outside the file")
	}
	var last [1]byte
	return m.ReadAt(last[:], off+n-1)
}

// ReadAt fills buf from off.
func (m *Image) ReadAt(buf []byte, off uint64) error {
	if err := m.budget.err(); err != nil {
		return err
	}
	n, err := m.Reader.ReadAt(buf, int64(off))
	switch {
	case n == len(buf):
		return nil
	case err == io.EOF:
		return m.Fail(off+uint64(n), "file ends here, within a table")
	default:
		return err
	}
}

// Fail returns the error that there is damage at off.
func (m *Image) Fail(off uint64, msg string) error {
	return m.Damage(&cursor.Error{Offset: int64(off), Msg: msg})
}

// Damage names the file of an error in its contents.
func (m *Image) Damage(err error) error {
	if err == nil {
		return nil
	}
	return &FormatError{m.Name, err}
}

// maxCompared is how much of a name is looked at to judge it.
const maxCompared = 4 << 10

// BeginningAt returns the string at off, or its first part if it is absurdly long:
// enough to judge a name, at a cost that a hostile table of strings does not set.
func BeginningAt(table string, off uint32) string {
	if uint64(off) >= uint64(len(table)) {
		return ""
	}
	s := table[off:]
	s = s[:min(len(s), maxCompared)]
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s
}

// StringAt returns the NUL-terminated string at off, or "" where there is none.
func StringAt(table string, off uint32) string {
	if uint64(off) >= uint64(len(table)) {
		return ""
	}
	s := table[off:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return ""
}
