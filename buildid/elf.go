package buildid

import (
	"encoding/binary"
	"math"

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
	ident := s.read(0, 16, "ELF header")
	if ident == nil {
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
	b := s.read(0, s.layout.headerSize(), "ELF header")
	if b == nil {
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

// usable reports whether t has entries, of the size that they should have.
func (s *search) usable(t *table, size int) bool {
	switch {
	case t.pos == 0 || t.count == 0:
		return false
	case int(t.entrySize) != size:
		s.damaged(t.pos, "%s of %d bytes", t.what, t.entrySize)
		return false
	case t.pos > math.MaxInt64 || t.count > (math.MaxInt64-t.pos)/uint64(size):
		s.damaged(t.pos, "%s outside the file", t.what)
		return false
	default:
		return true
	}
}

// sectionZero returns sh_size and sh_info of section header 0: the numbers of
// sections and of program headers if these do not fit the ELF header.
func (s *search) sectionZero() (size, info uint64) {
	l := s.layout
	b := s.read(s.sections.pos, l.sectionHeaderSize(), s.sections.what)
	if b == nil {
		return 0, 0
	}
	return l.address(b[8+3*l.word:]), uint64(l.u32(b[12+4*l.word:]))
}

// program returns the bytes of program header i and its p_type, nil at the end.
func (s *search) program(i uint64) (b []byte, kind uint32) {
	if i >= s.programs.count {
		return nil, 0
	}
	size := s.layout.programHeaderSize()
	if b = s.read(s.programs.pos+i*uint64(size), size, s.programs.what); b == nil {
		return nil, 0
	}
	return b, s.layout.u32(b)
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
	s.notes.n = 0
	if s.programs.count == pnXNum && s.sections.pos != 0 {
		_, s.programs.count = s.sectionZero()
	}
	if !s.usable(&s.programs, s.layout.programHeaderSize()) {
		return
	}
	for i := uint64(0); !s.notes.full(); i++ {
		b, kind := s.program(i)
		if b == nil {
			break
		}
		if kind == ptNote {
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
		b, kind := s.program(i)
		if b == nil {
			break
		}
		if kind != ptLoad {
			continue
		}
		p := s.layout.segment(b)
		if p.offset < first.offset {
			first = p
		}
		for j := range s.notes.all() {
			s.notes.list[j].load(p)
		}
	}
	found := s.notes.all()
	s.notes.n = 0
	for _, r := range found {
		if r.loaded {
			r.pos -= first.vaddr - first.offset
			s.notes.add(r)
		}
	}
}

// listSections sets notes to the SHT_NOTE sections.
func (s *search) listSections() {
	s.notes.n = 0
	l, size := s.layout, s.layout.sectionHeaderSize()
	if s.sections.count == 0 && s.sections.pos != 0 {
		s.sections.count, _ = s.sectionZero()
	}
	if !s.usable(&s.sections, size) {
		return
	}
	for i := uint64(0); i < s.sections.count && !s.notes.full(); i++ {
		b := s.read(s.sections.pos+i*uint64(size), size, s.sections.what)
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
		s.damaged(offset, "notes outside the file")
		return
	}
	r := region{pos: offset, size: size, align: 4, file: addr.Offset(offset)}
	if align == 8 {
		r.align = 8
	}
	s.notes.add(r)
}
