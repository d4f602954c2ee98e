package elffile

import (
	"cmp"
	"errors"
	"fmt"
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

// Error returns the file's name, if it has one, and what was wrong.
func (e *FormatError) Error() string {
	if e.Name == "" {
		return e.Err.Error()
	}
	return e.Name + ": " + e.Err.Error()
}

// Unwrap returns what was wrong.
func (e *FormatError) Unwrap() error { return e.Err }

// Constants of the gABI, under the names it gives them.
const (
	etREL  = 1
	emARM  = 40
	pnXNUM = 0xffff

	ptLOAD       = 1
	ptDYNAMIC    = 2
	ptNOTE       = 4
	ptGNUEHFRAME = 0x6474e550

	shnLORESERVE = 0xff00 // from here on a number of a section stands for something else
	shnXINDEX    = 0xffff // for what is in another table

	SHT_PROGBITS = 1
	SHT_SYMTAB   = 2
	SHT_RELA     = 4
	SHT_NOBITS   = 8
	SHT_DYNSYM   = 11

	SHT_SYMTAB_SHNDX = 18

	SHF_WRITE     = 1
	SHF_ALLOC     = 2
	SHF_EXECINSTR = 4

	SHF_COMPRESSED = 0x800
)

// Limits on what a file may claim. The largest files known, browsers with all
// their symbols, stay below a tenth of them.
const (
	maxHeaders = 1 << 20 // program headers
	// maxSections is how many section headers are read. A kernel with a section for each function has a tenth of them;
	// each takes eighty bytes of memory, and a file of a million has 187 KB when it is compressed.
	maxSections = 1 << 18
	// maxSectionNames is how much is read of the table of their names, of which a kernel with a section for each
	// function has some megabytes. Behind that they have none.
	maxSectionNames = 16 << 20
	MaxTable        = 1 << 30 // bytes of one table
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

// Holds reports whether the byte at o in the file is part of the segment.
func (s Segment) Holds(o addr.Offset) bool {
	return o >= s.Offset && uint64(o-s.Offset) < s.FileSize
}

// Section is a section header.
type Section struct {
	Name   string
	Type   uint32
	Flags  uint64
	Addr   uint64
	Offset uint64
	Size   uint64
	Link   uint32
	info   uint32
	Align  uint64

	nameOff uint32
}

// IsText reports whether the section holds code.
func (s *Section) IsText() bool {
	return s.Flags&(SHF_ALLOC|SHF_EXECINSTR) == SHF_ALLOC|SHF_EXECINSTR
}

// Contains reports whether v is one of the section's addresses.
func (s *Section) Contains(v uint64) bool { return v-s.Addr < s.Size }

// header is the part of the ELF header that says where the tables are.
type header struct {
	phoff, shoff     uint64
	phentsize, phnum uint64
	shentsize, shnum uint64
	shstrndx         uint64
}

// Read reads the headers of an ELF file (gABI, "Object Files"). Where a table of headers is damaged,
// it returns, with the error, the Image as far as it is sound: in memory there are no section headers,
// and program headers lead to the code as well. It returns no Image where the ELF header is damaged.
func Read(r io.ReaderAt, name string) (*Image, error) {
	m := &Image{Reader: r, Name: name, budget: budget{stored: storedIn(r)}}
	h, err := m.readHeader()
	if err != nil {
		return nil, err
	}
	err = m.readSections(&h)
	switch {
	case !m.Relocatable && (err == nil || h.phnum != pnXNUM):
		err = cmp.Or(err, m.readSegments(&h))
		if err == nil && len(m.Sections) <= 1 { // at most the one that stands for none
			m.standIn()
		}
	case err == nil:
		m.layOut()
	}
	return m, err
}

func (m *Image) readHeader() (header, error) {
	var buf [64]byte
	n, err := m.Reader.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	if n < 16 || string(buf[:4]) != "\x7fELF" {
		return header{}, &FormatError{m.Name, ErrNotELF}
	}
	m.Is64, m.Big = buf[4] == 2, buf[5] == 2
	c := m.Cursor(buf[:n], 0)
	c.SeekTo(4)
	if class, order := c.U8(), c.U8(); class-1 > 1 || order-1 > 1 {
		c.Fail("ELF class %d with byte order %d is unknown", class, order)
	}
	c.SeekTo(16)
	m.Relocatable = c.U16() == etREL
	m.Machine = c.U16()
	m.Arm = m.Machine == emARM
	c.Skip(4) // e_version
	m.Entry = addr.Virt(m.Word(&c))
	h := header{phoff: m.Word(&c), shoff: m.Word(&c)}
	c.Skip(4 + 2) // e_flags, e_ehsize
	h.phentsize, h.phnum = uint64(c.U16()), uint64(c.U16())
	h.shentsize, h.shnum = uint64(c.U16()), uint64(c.U16())
	h.shstrndx = uint64(c.U16())
	return h, m.Damage(c.Err())
}

// readSections reads the section headers. The first of them holds the counts
// that did not fit the ELF header, which it corrects.
func (m *Image) readSections(h *header) error {
	if h.shoff == 0 {
		return nil
	}
	first, err := m.entries(h.shoff, 1, h.shentsize, m.Size(40, 64))
	if err != nil {
		return err
	}
	zero := m.parseSection(&first)
	if h.shnum == 0 {
		h.shnum = zero.Size
	}
	if h.shstrndx == shnXINDEX {
		h.shstrndx = uint64(zero.Link)
	}
	if h.phnum == pnXNUM {
		h.phnum = uint64(zero.info)
	}
	if h.shnum > maxSections {
		return m.Fail(h.shoff, fmt.Sprintf("%d section headers, and at most %d are read", h.shnum, maxSections))
	}
	if err := m.take(h.shoff, h.shnum*h.shentsize); err != nil {
		return err
	}
	sections := make([]Section, 0, h.shnum)
	for chunk := max(1, headersAtOnce/h.shentsize); uint64(len(sections)) < h.shnum; { // never the whole table
		n, at := min(chunk, h.shnum-uint64(len(sections))), h.shoff+uint64(len(sections))*h.shentsize
		table := make([]byte, n*h.shentsize)
		if err := m.ReadAt(table, at); err != nil {
			return err
		}
		c := m.Cursor(table, at)
		for i := range n {
			c.SeekTo(i * h.shentsize)
			sections = append(sections, m.parseSection(&c))
		}
	}
	m.Sections = sections
	return m.nameSections(h.shstrndx)
}

// headersAtOnce is how many bytes of section headers are in memory at a time.
const headersAtOnce = 256 << 10

func (m *Image) parseSection(c *cursor.Cursor) Section {
	var s Section
	s.nameOff, s.Type = c.U32(), c.U32()
	s.Flags, s.Addr = m.Word(c), m.Word(c)
	s.Offset, s.Size = m.Word(c), m.Word(c)
	s.Link, s.info = c.U32(), c.U32()
	s.Align = m.Word(c)
	if s.Addr+s.Size < s.Addr {
		s.Size = -s.Addr // up to the last address there is
	}
	return s
}

func (m *Image) nameSections(shstrndx uint64) error {
	if shstrndx == 0 || shstrndx >= uint64(len(m.Sections)) {
		return nil
	}
	names, err := m.ReadString(m.Sections[shstrndx].Offset, min(m.Sections[shstrndx].Size, maxSectionNames))
	if err != nil {
		return err
	}
	for i := range m.Sections {
		m.Sections[i].Name = BeginningAt(names, m.Sections[i].nameOff)
	}
	return nil
}

func (m *Image) readSegments(h *header) error {
	if h.phoff == 0 || h.phnum == 0 {
		return nil
	}
	table, err := m.entries(h.phoff, h.phnum, h.phentsize, m.Size(32, 56))
	if err != nil {
		return err
	}
	for i := range h.phnum {
		table.SeekTo(i * h.phentsize)
		switch s, typ := m.parseSegment(&table); typ {
		case ptLOAD:
			m.Segments = append(m.Segments, s)
		case ptDYNAMIC:
			m.dynamic = s
		case ptNOTE:
			if len(m.notes) < maxStandIns {
				m.notes = append(m.notes, s)
			}
		case ptGNUEHFRAME:
			m.EHFrameHeader = s
		}
	}
	return nil
}

// parseSegment reads a program header and returns its type too.
func (m *Image) parseSegment(c *cursor.Cursor) (s Segment, typ uint32) {
	typ = c.U32()
	if m.Is64 {
		s.Flags = c.U32()
	}
	s.Offset, s.Virt = addr.Offset(m.Word(c)), addr.Virt(m.Word(c))
	m.Word(c) // p_paddr
	s.FileSize, s.MemSize = m.Word(c), m.Word(c)
	if !m.Is64 {
		s.Flags = c.U32()
	}
	return s, typ
}

// layOut gives the sections of a relocatable file addresses, one after another
// from 0, as elfutils does: so every instruction has a virtual address, and a
// debug file made from the file, which has the same allocated sections, the same.
func (m *Image) layOut() {
	next := uint64(0)
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.Flags&SHF_ALLOC == 0 || s.Size > MaxTable {
			continue
		}
		if s.Align > 1 && s.Align <= 1<<16 {
			next = (next + s.Align - 1) / s.Align * s.Align
		}
		s.Addr = next
		next += s.Size
		m.Segments = append(m.Segments, s.Segment())
	}
}

// Segment returns the section as if it were mapped alone.
func (s *Section) Segment() Segment {
	g := Segment{Offset: addr.Offset(s.Offset), Virt: addr.Virt(s.Addr), FileSize: s.Size, MemSize: s.Size, Flags: 4}
	if s.Type == SHT_NOBITS {
		g.FileSize = 0
	}
	if s.IsText() {
		g.Flags |= 1
	}
	return g
}
