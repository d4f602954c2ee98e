package symbol

import (
	"errors"
	"io"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// ErrNotELF says that a file is no ELF file at all.
var ErrNotELF = errors.New("not an ELF file")

// FormatError is damage found in a file. Err is a *cursor.Error where the
// damage has an offset.
type FormatError struct {
	Name string // of the file
	Err  error
}

// Error returns the file's name and what was wrong.
func (e *FormatError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns what was wrong.
func (e *FormatError) Unwrap() error { return e.Err }

// Constants of the gABI, under the names it gives them.
const (
	etREL  = 1
	emARM  = 40
	pnXNUM = 0xffff
	ptLOAD = 1

	shnLORESERVE = 0xff00 // from here on a number of a section stands for something else
	shnXINDEX    = 0xffff // for what is in another table

	shtPROGBITS = 1
	shtSYMTAB   = 2
	shtRELA     = 4
	shtNOBITS   = 8
	shtDYNSYM   = 11

	shtSYMTABSHNDX = 18

	shfWRITE     = 1
	shfALLOC     = 2
	shfEXECINSTR = 4
)

// Limits on what a file may claim. The largest files known, browsers with all
// their symbols, stay below a tenth of them.
const (
	maxHeaders = 1 << 20 // section or program headers
	maxTable   = 1 << 30 // bytes of one table
)

// A Segment is a PT_LOAD program header: a part of the file that is mapped.
type Segment struct {
	Offset   addr.Offset // p_offset
	Virt     addr.Virt   // p_vaddr
	FileSize uint64      // p_filesz, bytes that come from the file
	MemSize  uint64      // p_memsz, bytes in memory
	Flags    uint32      // p_flags: the sum of 1 (execute), 2 (write) and 4 (read)
}

// Executable reports whether the segment holds code.
func (s Segment) Executable() bool { return s.Flags&1 != 0 }

// holds reports whether the byte at o in the file is part of the segment.
func (s Segment) holds(o addr.Offset) bool {
	return o >= s.Offset && uint64(o-s.Offset) < s.FileSize
}

// section is a section header.
type section struct {
	name  string
	typ   uint32
	flags uint64
	addr  uint64
	off   uint64
	size  uint64
	link  uint32
	info  uint32
	align uint64

	nameOff uint32
}

// isText reports whether the section holds code.
func (s *section) isText() bool {
	return s.flags&(shfALLOC|shfEXECINSTR) == shfALLOC|shfEXECINSTR
}

// contains reports whether v is one of the section's addresses.
func (s *section) contains(v uint64) bool { return v-s.addr < s.size }

// header is the part of the ELF header that says where the tables are.
type header struct {
	phoff, shoff     uint64
	phentsize, phnum uint64
	shentsize, shnum uint64
	shstrndx         uint64
}

// readImage reads the headers of an ELF file (gABI, "Object Files").
func readImage(r io.ReaderAt, name string) (*image, error) {
	m := &image{r: r, name: name, budget: newBudget(r)}
	h, err := m.readHeader()
	if err != nil {
		return nil, err
	}
	if err := m.readSections(&h); err != nil {
		return nil, err
	}
	if m.rel {
		m.layOut()
		return m, nil
	}
	return m, m.readSegments(&h)
}

func (m *image) readHeader() (header, error) {
	var buf [64]byte
	n, err := m.r.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	if n < 16 || string(buf[:4]) != "\x7fELF" {
		return header{}, &FormatError{m.name, ErrNotELF}
	}
	m.is64, m.big = buf[4] == 2, buf[5] == 2
	c := m.cursor(buf[:n], 0)
	c.SeekTo(4)
	if class, order := c.U8(), c.U8(); class-1 > 1 || order-1 > 1 {
		c.Fail("ELF class %d with byte order %d is unknown", class, order)
	}
	c.SeekTo(16)
	m.rel = c.U16() == etREL
	m.machine = c.U16()
	m.arm = m.machine == emARM
	c.Skip(4)  // e_version
	m.word(&c) // e_entry
	h := header{phoff: m.word(&c), shoff: m.word(&c)}
	c.Skip(4 + 2) // e_flags, e_ehsize
	h.phentsize, h.phnum = uint64(c.U16()), uint64(c.U16())
	h.shentsize, h.shnum = uint64(c.U16()), uint64(c.U16())
	h.shstrndx = uint64(c.U16())
	return h, m.damage(c.Err())
}

// readSections reads the section headers. The first of them holds the counts
// that did not fit the ELF header, which it corrects.
func (m *image) readSections(h *header) error {
	if h.shoff == 0 {
		return nil
	}
	first, err := m.entries(h.shoff, 1, h.shentsize, m.size(40, 64))
	if err != nil {
		return err
	}
	zero := m.parseSection(&first)
	if h.shnum == 0 {
		h.shnum = zero.size
	}
	if h.shstrndx == shnXINDEX {
		h.shstrndx = uint64(zero.link)
	}
	if h.phnum == pnXNUM {
		h.phnum = uint64(zero.info)
	}
	table, err := m.entries(h.shoff, h.shnum, h.shentsize, m.size(40, 64))
	if err != nil {
		return err
	}
	m.sections = make([]section, h.shnum)
	for i := range m.sections {
		table.SeekTo(uint64(i) * h.shentsize)
		m.sections[i] = m.parseSection(&table)
	}
	return m.nameSections(h.shstrndx)
}

func (m *image) parseSection(c *cursor.Cursor) section {
	var s section
	s.nameOff, s.typ = c.U32(), c.U32()
	s.flags, s.addr = m.word(c), m.word(c)
	s.off, s.size = m.word(c), m.word(c)
	s.link, s.info = c.U32(), c.U32()
	s.align = m.word(c)
	if s.addr+s.size < s.addr {
		s.size = -s.addr // up to the last address there is
	}
	return s
}

func (m *image) nameSections(shstrndx uint64) error {
	if shstrndx == 0 || shstrndx >= uint64(len(m.sections)) {
		return nil
	}
	names, err := m.readString(m.sections[shstrndx].off, m.sections[shstrndx].size)
	if err != nil {
		return err
	}
	for i := range m.sections {
		m.sections[i].name = beginningAt(names, m.sections[i].nameOff)
	}
	return nil
}

func (m *image) readSegments(h *header) error {
	if h.phoff == 0 || h.phnum == 0 {
		return nil
	}
	table, err := m.entries(h.phoff, h.phnum, h.phentsize, m.size(32, 56))
	if err != nil {
		return err
	}
	for i := range h.phnum {
		table.SeekTo(i * h.phentsize)
		if s, ok := m.parseSegment(&table); ok {
			m.segments = append(m.segments, s)
		}
	}
	return nil
}

// parseSegment reads a program header and reports whether it is a PT_LOAD.
func (m *image) parseSegment(c *cursor.Cursor) (s Segment, ok bool) {
	ok = c.U32() == ptLOAD
	if m.is64 {
		s.Flags = c.U32()
	}
	s.Offset, s.Virt = addr.Offset(m.word(c)), addr.Virt(m.word(c))
	m.word(c) // p_paddr
	s.FileSize, s.MemSize = m.word(c), m.word(c)
	if !m.is64 {
		s.Flags = c.U32()
	}
	return s, ok
}

// layOut gives the sections of a relocatable file addresses, one after another
// from 0, as elfutils does: so every instruction has a virtual address, and a
// debug file made from the file, which has the same allocated sections, the same.
func (m *image) layOut() {
	next := uint64(0)
	for i := range m.sections {
		s := &m.sections[i]
		if s.flags&shfALLOC == 0 || s.size > maxTable {
			continue
		}
		if s.align > 1 && s.align <= 1<<16 {
			next = (next + s.align - 1) / s.align * s.align
		}
		s.addr = next
		next += s.size
		m.segments = append(m.segments, s.segment())
	}
}

// segment returns the section as if it were mapped alone.
func (s *section) segment() Segment {
	g := Segment{Offset: addr.Offset(s.off), Virt: addr.Virt(s.addr), FileSize: s.size, MemSize: s.size, Flags: 4}
	if s.typ == shtNOBITS {
		g.FileSize = 0
	}
	if s.isText() {
		g.Flags |= 1
	}
	return g
}
