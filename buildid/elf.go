package buildid

import (
	"encoding/binary"
	"math"
	"slices"

	"hallmark/addr"
)

const magic = "\x7fELF"

// Numbers of the ELF specification (gABI, chapters 4, 5 and 7).
const (
	ptLoad  = 1
	ptNote  = 4
	shtNote = 7
	pnXNum  = 0xffff // as e_phnum: the number is in section header 0
)

// A layout is how the file writes its structures. Most members of a header lie
// at the same place in both classes if it is counted in words.
type layout struct {
	word int // bytes of an address, 4 or 8
	big  bool
}

func (l layout) headerSize() int        { return 40 + 3*l.word }
func (l layout) programHeaderSize() int { return 8 + 6*l.word }
func (l layout) sectionHeaderSize() int { return 16 + 6*l.word }

func (l layout) u16(b []byte) uint16 {
	if l.big {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (l layout) u32(b []byte) uint32 {
	if l.big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

// address reads a number of one word.
func (l layout) address(b []byte) uint64 {
	switch {
	case l.word == 4:
		return uint64(l.u32(b))
	case l.big:
		return binary.BigEndian.Uint64(b)
	default:
		return binary.LittleEndian.Uint64(b)
	}
}

// A table is the program headers or the section headers.
type table struct {
	what      string // one of its entries
	pos       uint64
	count     uint64
	entrySize uint16
}

// readHeader finds out the layout and the two tables.
func (s *search) readHeader() bool {
	const what = "ELF header"
	ident := s.at(0, 16)
	if ident == nil {
		s.missing(0, what)
		return false
	}
	class, order := ident[4], ident[5]
	if class != 1 && class != 2 {
		s.damaged(4, "ELF class %d", class)
		return false
	}
	if order != 1 && order != 2 {
		s.damaged(5, "ELF byte order %d", order)
		return false
	}
	s.layout = layout{word: 4 * int(class), big: order == 2}
	b := s.at(0, s.layout.headerSize())
	if b == nil {
		s.missing(0, what)
		return false
	}
	s.readTables(b)
	return true
}

func (s *search) readTables(header []byte) {
	l := s.layout
	s.programs.what, s.programs.pos = "program header", l.address(header[24+l.word:])
	s.sections.what, s.sections.pos = "section header", l.address(header[24+2*l.word:])
	sizes := header[30+3*l.word:]
	s.programs.entrySize, s.programs.count = l.u16(sizes), uint64(l.u16(sizes[2:]))
	s.sections.entrySize, s.sections.count = l.u16(sizes[4:]), uint64(l.u16(sizes[6:]))
}

// check makes t empty unless its entries have the size that they should have.
func (s *search) check(t *table, size int) {
	switch {
	case t.pos == 0 || t.count == 0:
		t.count = 0
	case int(t.entrySize) != size:
		s.damaged(addr.Offset(t.pos), "%s of %d bytes", t.what, t.entrySize)
		t.count = 0
	case t.pos > math.MaxInt64 || t.count > (math.MaxInt64-t.pos)/uint64(size):
		s.damaged(addr.Offset(t.pos), "%s outside the file", t.what)
		t.count = 0
	}
}

// entry returns entry i of a table that was checked, nil behind the last one.
func (s *search) entry(t *table, i uint64) []byte {
	if i >= t.count {
		return nil
	}
	pos := t.pos + i*uint64(t.entrySize)
	b := s.at(pos, int(t.entrySize))
	if b == nil {
		s.missing(pos, t.what)
	}
	return b
}

// sectionZero returns sh_size and sh_info of section header 0: the numbers of
// sections and of program headers if these do not fit the ELF header.
func (s *search) sectionZero() (size, info uint64) {
	l := s.layout
	b := s.at(s.sections.pos, l.sectionHeaderSize())
	if b == nil {
		s.missing(s.sections.pos, s.sections.what)
		return 0, 0
	}
	return l.address(b[8+3*l.word:]), uint64(l.u32(b[12+4*l.word:]))
}

// A segment is what a search needs of a program header.
type segment struct {
	offset uint64
	vaddr  uint64
	size   uint64 // in the file
	align  uint64
}

func (l layout) segment(b []byte) segment {
	return segment{
		offset: l.address(b[l.word:]),
		vaddr:  l.address(b[2*l.word:]),
		size:   l.address(b[4*l.word:]),
		align:  l.address(b[len(b)-l.word:]),
	}
}

// listSegments sets notes to the PT_NOTE segments.
func (s *search) listSegments() {
	s.notes = s.notes[:0]
	if s.programs.count == pnXNum && s.sections.pos != 0 {
		_, s.programs.count = s.sectionZero()
	}
	s.check(&s.programs, s.layout.programHeaderSize())
	for i := uint64(0); len(s.notes) < maxRegions; i++ {
		b := s.entry(&s.programs, i)
		if b == nil {
			break
		}
		if s.layout.u32(b) == ptNote {
			p := s.layout.segment(b)
			s.add(p.offset, p.size, p.align)
		}
	}
}

// relocate turns the notes' places in the file into those in memory, counted from
// the ELF header, and drops what the loader does not map.
func (s *search) relocate() {
	first := segment{offset: math.MaxUint64} // in the file: it holds the ELF header
	for i := uint64(0); ; i++ {
		b := s.entry(&s.programs, i)
		if b == nil {
			break
		}
		if s.layout.u32(b) != ptLoad {
			continue
		}
		p := s.layout.segment(b)
		if p.offset < first.offset {
			first = p
		}
		for j := range s.notes {
			s.notes[j].load(p)
		}
	}
	s.notes = slices.DeleteFunc(s.notes, func(r region) bool { return !r.loaded })
	for i := range s.notes {
		s.notes[i].pos -= first.vaddr - first.offset
	}
}

// listSections sets notes to the SHT_NOTE sections.
func (s *search) listSections() {
	s.notes = s.notes[:0]
	l := s.layout
	if s.sections.count == 0 && s.sections.pos != 0 {
		s.sections.count, _ = s.sectionZero()
	}
	s.check(&s.sections, l.sectionHeaderSize())
	for i := uint64(0); len(s.notes) < maxRegions; i++ {
		b := s.entry(&s.sections, i)
		if b == nil {
			break
		}
		if l.u32(b[4:]) == shtNote {
			s.add(l.address(b[8+2*l.word:]), l.address(b[8+3*l.word:]), l.address(b[16+4*l.word:]))
		}
	}
}

// add lists a place in the file that should hold notes.
func (s *search) add(offset, size, align uint64) {
	if offset > math.MaxInt64 || size > math.MaxInt64-offset {
		s.damaged(addr.Offset(offset), "notes outside the file")
		return
	}
	r := region{pos: offset, size: size, align: 4, file: addr.Offset(offset)}
	if align == 8 {
		r.align = 8
	}
	s.notes = append(s.notes, r)
}
