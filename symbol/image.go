package symbol

import (
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"hallmark/internal/cursor"
)

// image is an ELF file's headers and the way to its contents.
type image struct {
	r        io.ReaderAt
	name     string
	budget   *budget
	big      bool
	is64     bool
	machine  uint16
	arm      bool // 32-bit Arm, whose symbol values mark Thumb code
	rel      bool // a relocatable file, whose sections were laid out here
	segments []Segment
	sections []section

	program    *image // that a debug file was made from; nil for others, or where it is not known
	readingOPD sync.Once
	opd        *descriptors // nil before, and where there are none
}

// disjoint returns the sections of this type with these flags, except those that
// overlap an earlier one: so no byte of the file is read twice, however many
// sections claim it.
func (m *image) disjoint(typ uint32, flags uint64) []*section {
	var found []*section
	end := uint64(0)
	for i := range m.sections {
		s := &m.sections[i]
		if s.typ == typ && s.flags&flags == flags && s.off >= end {
			found = append(found, s)
			end = s.off + s.size
		}
	}
	return found
}

// sectionAt returns the section that holds the n bytes of memory at v, with
// contents in the file.
func (m *image) sectionAt(v, n uint64) *section {
	for i := range m.sections {
		s := &m.sections[i]
		if s.flags&shfALLOC != 0 && s.typ != shtNOBITS && s.contains(v) && n <= s.addr+s.size-v {
			return s
		}
	}
	return nil
}

// isText reports whether all addresses from start up to end are in one section of
// code.
func (m *image) isText(start, end uint64) bool {
	return slices.ContainsFunc(m.sections, func(s section) bool {
		return s.isText() && s.contains(start) && start <= end && end-s.addr <= s.size
	})
}

// hasCode reports whether the file holds the code that its headers speak of.
func (m *image) hasCode() bool {
	return slices.ContainsFunc(m.segments, func(s Segment) bool { return s.Executable() && s.FileSize > 0 })
}

// section returns the first section with this name and contents in the file.
func (m *image) section(name string) *section {
	for i := range m.sections {
		if s := &m.sections[i]; s.name == name && s.typ != shtNOBITS && s.size != 0 {
			return s
		}
	}
	return nil
}

// sectionOfType returns the first section of this type.
func (m *image) sectionOfType(typ uint32) *section {
	for i := range m.sections {
		if s := &m.sections[i]; s.typ == typ && s.size != 0 {
			return s
		}
	}
	return nil
}

// size returns what a structure measures in this file's class.
func (m *image) size(in32, in64 uint64) uint64 {
	if m.is64 {
		return in64
	}
	return in32
}

// word reads an address-sized number.
func (m *image) word(c *cursor.Cursor) uint64 { return c.Word(int(m.size(4, 8))) }

func (m *image) cursor(data []byte, off uint64) cursor.Cursor {
	return cursor.New(data, int64(off), m.big)
}

// entries reads a table of count entries, each stride bytes long, of which the
// first size are understood.
func (m *image) entries(off, count, stride, size uint64) (cursor.Cursor, error) {
	if count > maxHeaders || stride < size {
		return cursor.Cursor{}, m.fail(off, "table of implausible shape")
	}
	data, err := m.read(off, count*stride)
	return m.cursor(data, off), err
}

// eachEntry calls f with a cursor at each entry of a section, of size bytes; f must
// read all of it. The section is never in memory as a whole.
func (m *image) eachEntry(s *section, size uint64, f func(*cursor.Cursor)) error {
	if err := m.take(s.off, s.size); err != nil {
		return err
	}
	total := s.size / size * size
	chunk := make([]byte, min(total, size<<12))
	for done := uint64(0); done < total; done += uint64(len(chunk)) {
		chunk = chunk[:min(total-done, uint64(len(chunk)))]
		if err := m.readAt(chunk, s.off+done); err != nil {
			return err
		}
		c := m.cursor(chunk, s.off+done)
		for c.Len() > 0 {
			f(&c)
		}
	}
	return nil
}

// read returns n bytes at off.
func (m *image) read(off, n uint64) ([]byte, error) {
	if err := m.take(off, n); err != nil {
		return nil, err
	}
	data := make([]byte, n)
	return data, m.readAt(data, off)
}

// readString returns n bytes at off. Tables of names are kept as strings, so
// that every name is a part of one and costs nothing.
func (m *image) readString(off, n uint64) (string, error) {
	if err := m.take(off, n); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(int(n))
	chunk := make([]byte, min(n, 64<<10))
	for done := uint64(0); done < n; {
		part := chunk[:min(n-done, uint64(len(chunk)))]
		if err := m.readAt(part, off+done); err != nil {
			return "", err
		}
		b.Write(part)
		done += uint64(len(part))
	}
	return b.String(), nil
}

// check reports whether n bytes at off can be a table in memory.
func (m *image) check(off, n uint64) error {
	if n > maxTable {
		return m.fail(off, "table is too large")
	}
	if err := m.checkEnd(off, n); err != nil {
		return err
	}
	return m.allow(off, n)
}

// take does what check does, for what is read now.
func (m *image) take(off, n uint64) error {
	if err := m.check(off, n); err != nil {
		return err
	}
	return m.spend(off, n)
}

// checkEnd reports whether n bytes at off are in the file, by asking for the last
// of them: a length that the file does not have allocates nothing.
func (m *image) checkEnd(off, n uint64) error {
	switch {
	case n == 0:
		return nil
	case off > math.MaxInt64-n:
		return m.fail(off, "table is outside the file")
	}
	var last [1]byte
	return m.readAt(last[:], off+n-1)
}

// readAt fills buf from off.
func (m *image) readAt(buf []byte, off uint64) error {
	if err := m.budget.err(); err != nil {
		return err
	}
	n, err := m.r.ReadAt(buf, int64(off))
	switch {
	case n == len(buf):
		return nil
	case err == io.EOF:
		return m.fail(off+uint64(n), "file ends here, within a table")
	default:
		return err
	}
}

func (m *image) fail(off uint64, msg string) error {
	return m.damage(&cursor.Error{Offset: int64(off), Msg: msg})
}

// damage names the file of an error in its contents.
func (m *image) damage(err error) error {
	if err == nil {
		return nil
	}
	return &FormatError{m.name, err}
}

// maxCompared is how much of a name is looked at to judge it.
const maxCompared = 4 << 10

// beginningAt returns the string at off, or its first part if it is absurdly long:
// enough to judge a name, at a cost that a hostile table of strings does not set.
func beginningAt(table string, off uint32) string {
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

// stringAt returns the NUL-terminated string at off, or "" where there is none.
func stringAt(table string, off uint32) string {
	if uint64(off) >= uint64(len(table)) {
		return ""
	}
	s := table[off:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return ""
}
