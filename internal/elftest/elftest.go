// Package elftest builds ELF files for tests: small, of every class and byte
// order, and broken exactly where a test wants it.
//
// A File is described with the words of debug/elf. Build lays it out in this
// order: ELF header, program headers, the sections' data, section headers.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
)

// A File describes an ELF file. The zero value of every field has a sensible
// meaning; together they are an x86-64 shared object without content.
type File struct {
	Class   elf.Class        // ELFCLASS64 if zero
	Order   binary.ByteOrder // little-endian if nil
	Type    elf.Type         // ET_DYN if zero
	Machine elf.Machine      // EM_X86_64 if zero
	Entry   uint64

	Segments []Segment
	Sections []Section // numbered from 1; the null section is put before them

	// Symbols and DynSymbols become .symtab and .dynsym with their string tables,
	// behind Sections. The null symbol is put before them.
	Symbols    []elf.Symbol
	DynSymbols []elf.Symbol

	// NoSectionHeaders leaves out the section headers, but not the sections' data.
	NoSectionHeaders bool

	// Damage may change the headers before they are written. They are of the
	// 64-bit form for both classes, and the null section is sections[0].
	Damage func(h *elf.Header64, programs []elf.Prog64, sections []elf.Section64)
}

// A Section is data with a section header. Its place is the next multiple of
// Align, unless Offset says another one, further on.
type Section struct {
	Name    string
	Type    elf.SectionType
	Flags   elf.SectionFlag
	Addr    uint64
	Offset  uint64
	Data    []byte
	Size    uint64 // len(Data) if zero
	Link    uint32
	Info    uint32
	Align   uint64 // 1 if zero
	Entsize uint64
}

// A Segment is a program header. It covers what lies between the start of
// section From and the end of section To: from the start of the file if From is
// empty, only From if To is empty. If both are, Off and Size say what it covers.
type Segment struct {
	Type     elf.ProgType
	Flags    elf.ProgFlag
	From, To string
	Offset   uint64
	Vaddr    uint64
	Size     uint64 // in the file
	Memsize  uint64 // as in the file if zero
	Align    uint64
}

// Build returns the bytes of the file. It panics if a Segment names a section
// that does not exist: that is a mistake in the test.
func (f File) Build() []byte {
	b := newBuilder(f)
	b.addSymbols(".symtab", ".strtab", elf.SHT_SYMTAB, f.Symbols)
	b.addSymbols(".dynsym", ".dynstr", elf.SHT_DYNSYM, f.DynSymbols)
	b.addSectionNames()
	b.place()
	b.makeSegments()
	return b.write()
}

type builder struct {
	File
	word     int // bytes of an address
	offsets  []uint64
	names    []uint32 // offsets in .shstrtab, of Sections
	end      uint64   // of the last section's data
	header   elf.Header64
	programs []elf.Prog64
	sections []elf.Section64
}

func newBuilder(f File) *builder {
	b := &builder{File: f}
	if b.Class == elf.ELFCLASSNONE {
		b.Class = elf.ELFCLASS64
	}
	if b.Order == nil {
		b.Order = binary.LittleEndian
	}
	if b.Type == elf.ET_NONE {
		b.Type = elf.ET_DYN
	}
	if b.Machine == elf.EM_NONE {
		b.Machine = elf.EM_X86_64
	}
	b.word = 4 * int(b.Class)
	b.Sections = append([]Section(nil), f.Sections...)
	return b
}

func (b *builder) headerSize() int  { return 40 + 3*b.word }
func (b *builder) programSize() int { return 8 + 6*b.word }
func (b *builder) sectionSize() int { return 16 + 6*b.word }

// addSymbols appends a symbol table and its strings, if there are symbols.
func (b *builder) addSymbols(name, strings string, kind elf.SectionType, symbols []elf.Symbol) {
	if len(symbols) == 0 {
		return
	}
	var table bytes.Buffer
	names := []byte{0}
	b.writeSymbol(&table, elf.Sym64{})
	for _, s := range symbols {
		b.writeSymbol(&table, elf.Sym64{
			Name: uint32(len(names)), Info: s.Info, Other: s.Other,
			Shndx: uint16(s.Section), Value: s.Value, Size: s.Size,
		})
		names = append(append(names, s.Name...), 0)
	}
	link := uint32(len(b.Sections) + 2) // the string table, behind the null section and this one
	entry := table.Len() / (len(symbols) + 1)
	b.Sections = append(b.Sections,
		Section{Name: name, Type: kind, Data: table.Bytes(), Link: link, Info: 1, Align: 8, Entsize: uint64(entry)},
		Section{Name: strings, Type: elf.SHT_STRTAB, Data: names})
}

func (b *builder) writeSymbol(w *bytes.Buffer, s elf.Sym64) {
	if b.Class == elf.ELFCLASS64 {
		put(w, b.Order, s)
		return
	}
	put(w, b.Order, elf.Sym32{
		Name: s.Name, Value: uint32(s.Value), Size: uint32(s.Size),
		Info: s.Info, Other: s.Other, Shndx: s.Shndx,
	})
}

func (b *builder) addSectionNames() {
	if b.NoSectionHeaders {
		return
	}
	b.Sections = append(b.Sections, Section{Name: ".shstrtab", Type: elf.SHT_STRTAB})
	names := []byte{0}
	for _, s := range b.Sections {
		b.names = append(b.names, uint32(len(names)))
		names = append(append(names, s.Name...), 0)
	}
	b.Sections[len(b.Sections)-1].Data = names
}

// place decides where the data of each section goes.
func (b *builder) place() {
	b.end = uint64(b.headerSize() + len(b.Segments)*b.programSize())
	for _, s := range b.Sections {
		if s.Offset == 0 {
			s.Offset = roundUp(b.end, max(s.Align, 1))
		}
		b.offsets = append(b.offsets, s.Offset)
		b.end = max(b.end, s.Offset+uint64(len(s.Data)))
	}
}

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

func (b *builder) makeSegments() {
	for _, s := range b.Segments {
		if s.From != "" || s.To != "" {
			b.cover(&s)
		}
		if s.Memsize == 0 {
			s.Memsize = s.Size
		}
		b.programs = append(b.programs, elf.Prog64{
			Type: uint32(s.Type), Flags: uint32(s.Flags), Off: s.Offset, Vaddr: s.Vaddr, Paddr: s.Vaddr,
			Filesz: s.Size, Memsz: s.Memsize, Align: s.Align,
		})
	}
}

// cover sets the place of a segment from the sections that it names, and its
// address from that of the first.
func (b *builder) cover(s *Segment) {
	last := s.To
	if last == "" {
		last = s.From
	}
	to := b.index(last)
	if s.From != "" {
		from := b.index(s.From)
		s.Offset = b.offsets[from]
		if s.Vaddr == 0 {
			s.Vaddr = b.Sections[from].Addr
		}
	}
	s.Size = b.offsets[to] + uint64(len(b.Sections[to].Data)) - s.Offset
}

func (b *builder) index(name string) int {
	for i, s := range b.Sections {
		if s.Name == name {
			return i
		}
	}
	panic(fmt.Sprintf("elftest: no section %q", name))
}

// write assembles the file.
func (b *builder) write() []byte {
	b.makeSectionHeaders()
	b.makeHeader()
	if b.Damage != nil {
		b.Damage(&b.header, b.programs, b.sections)
	}
	var w bytes.Buffer
	b.writeHeader(&w)
	for _, p := range b.programs {
		b.writeProgram(&w, p)
	}
	for i, s := range b.Sections {
		b.pad(&w, b.offsets[i])
		w.Write(s.Data)
	}
	if len(b.sections) > 0 {
		b.pad(&w, b.sectionsOffset())
	}
	for _, s := range b.sections {
		b.writeSection(&w, s)
	}
	return w.Bytes()
}

func (b *builder) pad(w *bytes.Buffer, to uint64) {
	if to < uint64(w.Len()) {
		panic(fmt.Sprintf("elftest: a section at %#x overlaps what is before it", to))
	}
	w.Write(make([]byte, to-uint64(w.Len())))
}

func (b *builder) sectionsOffset() uint64 { return roundUp(b.end, 8) }

func (b *builder) makeSectionHeaders() {
	if b.NoSectionHeaders {
		return
	}
	b.sections = []elf.Section64{{}}
	for i, s := range b.Sections {
		if s.Size == 0 {
			s.Size = uint64(len(s.Data))
		}
		b.sections = append(b.sections, elf.Section64{
			Name: b.names[i], Type: uint32(s.Type), Flags: uint64(s.Flags), Addr: s.Addr,
			Off: b.offsets[i], Size: s.Size, Link: s.Link, Info: s.Info,
			Addralign: max(s.Align, 1), Entsize: s.Entsize,
		})
	}
}

func (b *builder) makeHeader() {
	h := &b.header
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(b.Class)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	if b.Order == binary.BigEndian {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	h.Type, h.Machine, h.Version = uint16(b.Type), uint16(b.Machine), uint32(elf.EV_CURRENT)
	h.Entry = b.Entry
	h.Ehsize = uint16(b.headerSize())
	h.Phentsize = uint16(b.programSize())
	h.Phnum = uint16(len(b.programs))
	if len(b.programs) > 0 {
		h.Phoff = uint64(b.headerSize())
	}
	h.Shentsize = uint16(b.sectionSize())
	if len(b.sections) > 0 {
		h.Shoff = b.sectionsOffset()
		h.Shnum = uint16(len(b.sections))
		h.Shstrndx = uint16(len(b.sections) - 1)
	}
}

func (b *builder) writeHeader(w *bytes.Buffer) {
	h := b.header
	if b.Class == elf.ELFCLASS64 {
		put(w, b.Order, h)
		return
	}
	put(w, b.Order, elf.Header32{
		Ident: h.Ident, Type: h.Type, Machine: h.Machine, Version: h.Version,
		Entry: narrow(h.Entry), Phoff: narrow(h.Phoff), Shoff: narrow(h.Shoff),
		Flags: h.Flags, Ehsize: h.Ehsize, Phentsize: h.Phentsize, Phnum: h.Phnum,
		Shentsize: h.Shentsize, Shnum: h.Shnum, Shstrndx: h.Shstrndx,
	})
}

func (b *builder) writeProgram(w *bytes.Buffer, p elf.Prog64) {
	if b.Class == elf.ELFCLASS64 {
		put(w, b.Order, p)
		return
	}
	put(w, b.Order, elf.Prog32{
		Type: p.Type, Off: narrow(p.Off), Vaddr: narrow(p.Vaddr), Paddr: narrow(p.Paddr),
		Filesz: narrow(p.Filesz), Memsz: narrow(p.Memsz), Flags: p.Flags, Align: narrow(p.Align),
	})
}

func (b *builder) writeSection(w *bytes.Buffer, s elf.Section64) {
	if b.Class == elf.ELFCLASS64 {
		put(w, b.Order, s)
		return
	}
	put(w, b.Order, elf.Section32{
		Name: s.Name, Type: s.Type, Flags: narrow(s.Flags), Addr: narrow(s.Addr),
		Off: narrow(s.Off), Size: narrow(s.Size), Link: s.Link, Info: s.Info,
		Addralign: narrow(s.Addralign), Entsize: narrow(s.Entsize),
	})
}

// narrow is n in a 32-bit file; what does not fit becomes as large as can be.
func narrow(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

func put(w *bytes.Buffer, order binary.ByteOrder, v any) {
	if err := binary.Write(w, order, v); err != nil {
		panic(err) // a bytes.Buffer does not fail, and every v is of fixed size
	}
}
