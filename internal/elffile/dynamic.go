package elffile

import (
	"cmp"
	"math"
	"slices"

	"hallmark/internal/cursor"
)

// Tags of PT_DYNAMIC, under the names that the gABI and glibc's elf.h give them.
const (
	dtNULL     = 0
	dtPLTRELSZ = 2
	dtHASH     = 4
	dtSTRTAB   = 5
	dtSYMTAB   = 6
	dtRELA     = 7
	dtRELASZ   = 8
	dtSTRSZ    = 10
	dtREL      = 17
	dtRELSZ    = 18
	dtPLTREL   = 20
	dtJMPREL   = 23
	dtGNUHASH  = 0x6ffffef5
)

// Machines whose DT_HASH has words of eight bytes.
const (
	emS390  = 22
	emALPHA = 0x9026
)

// Limits on what stands in for section headers. A program has a dozen segments and some forty dynamic tags.
const (
	maxStandIns = 256     // segments that become sections
	maxDynamic  = 1 << 12 // entries of PT_DYNAMIC
	maxNotes    = 1 << 12 // bytes of one PT_NOTE
)

// standIn makes sections for a file that has no section headers, of what the program headers and PT_DYNAMIC
// say: a section for each part of memory, .dynsym with its names, and the relocations. They have no names.
// DynamicErr says how the tables of dynamic symbols are damaged.
func (m *Image) standIn() {
	if len(m.Segments) == 0 || len(m.Segments) > maxStandIns {
		return
	}
	m.Headerless = true
	m.Sections = []Section{{}}
	for _, g := range m.Segments {
		m.Sections = append(m.Sections, sectionsOf(g)...)
	}
	if m.dynamic.FileSize > 0 {
		m.DynamicErr = m.addDynamic()
	}
}

// sectionsOf returns what a segment has of the file, and what it has behind that.
func sectionsOf(g Segment) (sections []Section) {
	s := Section{Type: SHT_PROGBITS, Flags: SHF_ALLOC, Addr: uint64(g.Virt), Offset: uint64(g.Offset), Size: g.FileSize}
	if s.Addr+s.Size < s.Addr {
		s.Size = -s.Addr
	}
	if g.Flags&1 != 0 {
		s.Flags |= SHF_EXECINSTR
	}
	if g.Flags&2 != 0 {
		s.Flags |= SHF_WRITE
	}
	if s.Size > 0 {
		sections = append(sections, s)
	}
	if start := s.Addr + s.Size; start != 0 && g.MemSize > g.FileSize {
		s.Type, s.Addr, s.Offset, s.Size = SHT_NOBITS, start, s.Offset+s.Size, min(g.MemSize-g.FileSize, -start)
		sections = append(sections, s)
	}
	return sections
}

// addDynamic adds the sections that PT_DYNAMIC leads to.
func (m *Image) addDynamic() error {
	tags, err := m.readDynamic()
	if err != nil {
		return err
	}
	symbols, names := Section{Type: SHT_DYNSYM, Flags: SHF_ALLOC}, Section{Flags: SHF_ALLOC, Size: tags[dtSTRSZ]}
	if tags[dtSYMTAB] != 0 && tags[dtSTRTAB] != 0 {
		count, err := m.countSymbols(tags)
		if err == nil {
			symbols.Size = count * m.Size(16, 24)
			err = cmp.Or(m.locate(&symbols, tags[dtSYMTAB]), m.locate(&names, tags[dtSTRTAB]))
		}
		if err != nil {
			return err
		}
		symbols.Link = uint32(len(m.Sections) + 1)
		m.Sections = append(m.Sections, symbols, names)
	}
	return m.addRelocations(tags)
}

// addRelocations adds the tables of relocations, in the order of the file. Those of the procedure linkage table
// may be a part of the others.
func (m *Image) addRelocations(tags map[uint64]uint64) error {
	plt := uint32(SHT_REL)
	if tags[dtPLTREL] == dtRELA {
		plt = SHT_RELA
	}
	link := uint32(0)
	if last := len(m.Sections) - 1; last > 0 && m.Sections[last-1].Type == SHT_DYNSYM {
		link = uint32(last - 1)
	}
	var tables []Section
	for _, t := range []struct {
		typ     uint32
		at, len uint64
	}{{SHT_RELA, tags[dtRELA], tags[dtRELASZ]}, {SHT_REL, tags[dtREL], tags[dtRELSZ]}, {plt, tags[dtJMPREL], tags[dtPLTRELSZ]}} {
		s := Section{Type: t.typ, Flags: SHF_ALLOC, Size: t.len, Link: link}
		if t.at == 0 || t.len == 0 {
			continue
		}
		if err := m.locate(&s, t.at); err != nil {
			return err
		}
		tables = append(tables, s)
	}
	slices.SortStableFunc(tables, func(a, b Section) int { return cmp.Compare(a.Offset, b.Offset) })
	m.Sections = append(m.Sections, tables...)
	return nil
}

// locate sets where a section is that PT_DYNAMIC leads to.
func (m *Image) locate(s *Section, v uint64) error {
	s.Addr = v
	in := m.SectionAt(v, s.Size)
	if in == nil {
		return m.Fail(uint64(m.dynamic.Offset), "PT_DYNAMIC leads to no part of the file")
	}
	s.Offset = in.Offset + v - in.Addr
	return nil
}

// readDynamic returns the values of PT_DYNAMIC by their tags, of each tag the first.
func (m *Image) readDynamic() (map[uint64]uint64, error) {
	size := m.Size(8, 16)
	data, err := m.Read(uint64(m.dynamic.Offset), min(m.dynamic.FileSize/size, maxDynamic)*size)
	if err != nil {
		return nil, err
	}
	tags := map[uint64]uint64{}
	for c := m.Cursor(data, uint64(m.dynamic.Offset)); c.Len() > 0; {
		tag, value := m.Word(&c), m.Word(&c)
		if tag == dtNULL {
			break
		}
		if _, known := tags[tag]; !known {
			tags[tag] = value
		}
	}
	return tags, nil
}

// countSymbols returns how many dynamic symbols there are. Nothing says so but the tables by which they are
// found: DT_HASH has the number, and the last chain of DT_GNU_HASH ends at the last symbol.
func (m *Image) countSymbols(tags map[uint64]uint64) (uint64, error) {
	if at := tags[dtHASH]; at != 0 {
		word := uint64(4)
		if m.Machine == emALPHA || m.Machine == emS390 && m.Is64 {
			word = 8
		}
		c, err := m.memoryAt(at, 2*word)
		if err != nil {
			return 0, err
		}
		c.Word(int(word))
		return c.Word(int(word)) & math.MaxUint32, c.Err()
	}
	if at := tags[dtGNUHASH]; at != 0 {
		return m.countByGNUHash(at)
	}
	return 0, m.Fail(uint64(m.dynamic.Offset), "PT_DYNAMIC does not say how many symbols there are")
}

// countByGNUHash returns how many symbols the table at an address finds, and those before them.
func (m *Image) countByGNUHash(at uint64) (uint64, error) {
	c, err := m.memoryAt(at, 16)
	if err != nil {
		return 0, err
	}
	buckets, first, bloom := uint64(c.U32()), uint64(c.U32()), uint64(c.U32())
	at += 16 + bloom*m.Size(4, 8)
	if c, err = m.memoryAt(at, 4*buckets); err != nil {
		return 0, err
	}
	last := uint64(0)
	for range buckets {
		last = max(last, uint64(c.U32()))
	}
	if last < first {
		return first, nil // no bucket has a symbol
	}
	return m.endOfChain(at+4*buckets+4*(last-first), last)
}

// endOfChain returns the number of symbols, of which the one with this number is in the chain at an address.
func (m *Image) endOfChain(at, number uint64) (uint64, error) {
	chain := Section{Size: 4}
	if err := m.locate(&chain, at); err != nil {
		return 0, err
	}
	in := m.SectionAt(at, 4)
	for end := in.Offset + in.Size; ; {
		data, err := m.Read(chain.Offset, min((end-chain.Offset)&^3, 4<<10))
		if err != nil {
			return 0, err
		}
		if len(data) == 0 {
			return 0, m.Fail(chain.Offset, "the last chain of DT_GNU_HASH does not end")
		}
		for c := m.Cursor(data, chain.Offset); c.Len() > 0; {
			number++
			if c.U32()&1 != 0 {
				return number, nil
			}
		}
		chain.Offset += uint64(len(data))
	}
}

// memoryAt returns n bytes of memory at v, as they are in the file.
func (m *Image) memoryAt(v, n uint64) (cursor.Cursor, error) {
	s := Section{Size: n}
	if err := m.locate(&s, v); err != nil {
		return cursor.Cursor{}, err
	}
	data, err := m.Read(s.Offset, n)
	return m.Cursor(data, s.Offset), err
}

// hasGoNote reports whether a PT_NOTE has the note in which Go's linker puts its build ID.
func (m *Image) hasGoNote() bool {
	const name, typ = "Go\x00\x00", 4
	for _, g := range m.notes {
		data, err := m.Read(uint64(g.Offset), min(g.FileSize, maxNotes))
		if err != nil {
			continue
		}
		for c := m.Cursor(data, uint64(g.Offset)); c.Len() >= 12; {
			nameSize, size, kind := uint64(c.U32()), uint64(c.U32()), c.U32()
			owner := c.Bytes((nameSize + 3) &^ 3)
			c.Skip((size + 3) &^ 3)
			if kind == typ && nameSize == uint64(len(name)) && string(owner) == name {
				return true
			}
		}
	}
	return false
}
