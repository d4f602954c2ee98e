package elffile

import (
	"encoding/binary"
	"math"
	"math/bits"

	"hallmark/internal/cursor"
)

// Symbol types and bindings, under the names the gABI gives them.
const (
	STT_NOTYPE    = 0
	STT_OBJECT    = 1
	STT_FUNC      = 2
	STT_FILE      = 4
	STT_GNU_IFUNC = 10

	STB_LOCAL = 0
)

// A Symbol is an entry of an ELF symbol table.
type Symbol struct {
	Name        uint32 // offset in the table of names
	Info        uint8  // st_info: the type in the lower four bits, the binding above
	Section     uint32 // noSection if it is in none
	Value, Size uint64
}

// Type returns the symbol's type.
func (s Symbol) Type() uint8 { return s.Info & 0xf }

// noSection is the number of no section: there are not so many.
const noSection = math.MaxUint32

// A SymbolReader reads the entries of a symbol table.
type SymbolReader struct {
	*Image
	number int // of the next entry
	// large has the sections of entries in which they do not fit, as a uint32 for each
	// entry of the table.
	large []byte
}

// Symbols returns the reader of the symbol table in section s.
func (m *Image) Symbols(s *Section) (*SymbolReader, error) {
	r := &SymbolReader{Image: m}
	for i := range m.Sections {
		t := &m.Sections[i]
		if t.Type == SHT_SYMTAB_SHNDX && uint64(t.Link) < uint64(len(m.Sections)) && &m.Sections[t.Link] == s {
			data, err := m.Read(t.Offset, t.Size)
			r.large = data
			return r, err
		}
	}
	return r, nil
}

// Next reads the next entry.
func (r *SymbolReader) Next(c *cursor.Cursor) Symbol {
	s := r.ParseSymbol(c.Bytes(r.Size(16, 24)))
	r.Locate(&s, r.number)
	r.number++
	return s
}

// Locate sets the section of the entry with this number, if it does not fit the entry.
func (r *SymbolReader) Locate(s *Symbol, number int) {
	switch at := 4 * number; {
	case s.Section == shnXINDEX && at+4 <= len(r.large):
		c := r.Cursor(r.large[at:], 0)
		s.Section = c.U32()
	case s.Section >= shnLORESERVE:
		s.Section = noSection // an absolute or common symbol
	case r.Headerless && s.Section != 0:
		s.Section = r.sectionOf(s.Value)
	}
}

// sectionOf returns the number of the section that holds an address: what a symbol says of sections that a
// file has no more leads to none.
func (m *Image) sectionOf(v uint64) uint32 {
	for i := range m.Sections {
		if s := &m.Sections[i]; (s.Type == SHT_PROGBITS || s.Type == SHT_NOBITS) && s.Contains(v) {
			return uint32(i)
		}
	}
	return noSection
}

// ParseSymbol reads an entry. Without one all is 0.
func (m *Image) ParseSymbol(b []byte) (s Symbol) {
	if len(b) == 0 {
		return s
	}
	le := binary.LittleEndian
	s.Name, s.Section = le.Uint32(b), uint32(le.Uint16(b[14:]))
	if m.Is64 {
		s.Info, s.Section = b[4], uint32(le.Uint16(b[6:]))
	} else {
		s.Info = b[12]
	}
	if m.Big {
		s.Name, s.Section = bits.ReverseBytes32(s.Name), uint32(bits.ReverseBytes16(uint16(s.Section)))
	}
	s.Value, s.Size = m.Extent(b)
	return s
}

// Extent reads the value and the size of an entry.
func (m *Image) Extent(b []byte) (value, size uint64) {
	le := binary.LittleEndian
	if m.Is64 {
		value, size = le.Uint64(b[8:]), le.Uint64(b[16:])
	} else {
		value, size = uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:]))
	}
	if m.Big {
		unused := 64 - 8*m.Size(4, 8)
		value, size = bits.ReverseBytes64(value)>>unused, bits.ReverseBytes64(size)>>unused
	}
	return value, size
}
