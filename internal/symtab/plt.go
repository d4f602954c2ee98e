package symtab

import (
	"cmp"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
)

// A pltEntry is code that jumps through a slot of the global offset table.
type pltEntry struct {
	start, end uint64
	slot       uint64
	relocated  bool
	symbol     uint32 // whose address the dynamic linker puts there, 0 for none
	resolver   uint64 // or the function that returns what is put there, 0 for none
}

// PLTSections returns the procedure linkage tables whose code is understood.
func PLTSections(m *elffile.Image) []*elffile.Section {
	if pltMachines[m.Machine] == nil || m.Is64 != (m.Machine != emX86) || m.Big || m.Relocatable {
		return nil
	}
	return slices.DeleteFunc(m.Disjoint(elffile.SHT_PROGBITS, elffile.SHF_ALLOC|elffile.SHF_EXECINSTR), func(s *elffile.Section) bool {
		switch s.Name {
		case ".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt":
			return false
		}
		return true
	})
}

// LoadPLT names the entries of the procedure linkage tables, or has nothing to say if
// there are addresses and none is in a table. No symbol table knows these entries.
//
// Which function an entry jumps to does not follow from its place: linkers leave entries
// out, and have tables of several kinds with an order of their own. It follows from the
// slot that the code jumps through, and the relocation of this slot.
func LoadPLT(m *elffile.Image, addresses []addr.Virt) (*Table, error) {
	sections := PLTSections(m)
	if addresses != nil && !slices.ContainsFunc(addresses, func(v addr.Virt) bool { return anyContains(sections, uint64(v)) }) {
		return new(Table), nil
	}
	var entries []pltEntry
	for _, s := range sections {
		code, err := m.Read(s.Offset, s.Size)
		if err != nil {
			return nil, err
		}
		entries = appendEntries(m, entries, s, code)
	}
	slices.SortFunc(entries, func(a, b pltEntry) int { return cmp.Compare(a.slot, b.slot) })
	if err := relocateSlots(m, entries); err != nil {
		return nil, err
	}
	return nameEntries(m, entries)
}

func anyContains(sections []*elffile.Section, v uint64) bool {
	return slices.ContainsFunc(sections, func(s *elffile.Section) bool { return s.Contains(v) })
}

// appendEntries appends the entries in section s.
func appendEntries(m *elffile.Image, entries []pltEntry, s *elffile.Section, code []byte) []pltEntry {
	machine, got := pltMachines[m.Machine], gotAddress(m)
	for off := 0; off < len(code); {
		at := s.Addr + uint64(off)
		slot, size, ok := machine.decode(code[off:], at, got)
		if !ok {
			off += machine.step
			continue
		}
		size = min(size, len(code)-off)
		entries = append(entries, pltEntry{start: at, end: at + uint64(size), slot: slot})
		off += size
	}
	return entries
}

// gotAddress returns what _GLOBAL_OFFSET_TABLE_ is on x86.
func gotAddress(m *elffile.Image) uint64 {
	for _, name := range []string{".got.plt", ".got"} {
		if s := m.Section(name); s != nil {
			return s.Addr
		}
	}
	return 0
}

// relocateSlots finds out what the dynamic linker puts into the slots of the entries,
// which are sorted by slot.
func relocateSlots(m *elffile.Image, entries []pltEntry) error {
	for _, typ := range []uint32{elffile.SHT_RELA, elffile.SHT_REL} {
		for _, s := range m.Disjoint(typ, elffile.SHF_ALLOC) {
			entry := m.Size(8, 16)
			if typ == elffile.SHT_RELA {
				entry = m.Size(12, 24)
			}
			err := m.EachEntry(s, entry, func(c *cursor.Cursor) { relocateSlot(m, c, s, entries) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// relocateSlot reads a relocation of section s.
func relocateSlot(m *elffile.Image, c *cursor.Cursor, s *elffile.Section, entries []pltEntry) {
	slot, info := m.Word(c), m.Word(c)
	addend := uint64(0)
	if s.Type == elffile.SHT_RELA {
		addend = m.Word(c)
	}
	symbol, typ := uint32(info>>32), uint32(info)
	if !m.Is64 {
		symbol, typ = uint32(info>>8), uint32(info&0xff)
	}
	machine := pltMachines[m.Machine]
	if typ != machine.globDat && typ != machine.jumpSlot && typ != machine.irelative {
		return
	}
	i, _ := slices.BinarySearchFunc(entries, slot, func(e pltEntry, slot uint64) int { return cmp.Compare(e.slot, slot) })
	for ; i < len(entries) && entries[i].slot == slot && !entries[i].relocated; i++ {
		entries[i].relocated = true
		switch {
		case typ != machine.irelative && isDynsym(m, s.Link):
			entries[i].symbol = symbol
		case typ == machine.irelative && s.Type == elffile.SHT_RELA:
			entries[i].resolver = addend
		case typ == machine.irelative:
			entries[i].resolver = wordAt(m, slot)
		}
	}
}

func isDynsym(m *elffile.Image, index uint32) bool {
	return uint64(index) < uint64(len(m.Sections)) && &m.Sections[index] == m.SectionOfType(elffile.SHT_DYNSYM)
}

// wordAt returns the address-sized number at a virtual address, 0 where there is none.
func wordAt(m *elffile.Image, v uint64) uint64 {
	size := m.Size(4, 8)
	s := m.SectionAt(v, size)
	if s == nil {
		return 0
	}
	data, err := m.Read(s.Offset+v-s.Addr, size)
	if err != nil {
		return 0
	}
	c := m.Cursor(data, 0)
	return m.Word(&c)
}

// maxEntryNames is how many bytes the names of all entries may take. Those of the largest
// programs take some megabytes.
const maxEntryNames = 256 << 20

// nameEntries returns the table of the entries whose functions have names.
func nameEntries(m *elffile.Image, entries []pltEntry) (*Table, error) {
	symbols, err := dynamicNames(m, entries)
	if err != nil {
		return nil, err
	}
	resolvers, err := resolverNames(m, entries)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b pltEntry) int { return cmp.Compare(a.start, b.start) })
	t, names := new(Table), Names{}
	for _, e := range entries {
		name := symbols[e.symbol]
		if name == "" {
			name = resolvers[e.resolver]
		}
		if names.Len() > maxEntryNames { // any number of entries may jump to one function
			return nil, m.Fail(0, longNames)
		}
		if name != "" {
			t.Ranges.Add(e.start, e.end, names.Add([]byte(Unversioned(name)+PLTSuffix)))
		}
	}
	t.Names = names.String()
	return t, nil
}

// dynamicNames returns the names of the symbols of .dynsym that entries jump to.
func dynamicNames(m *elffile.Image, entries []pltEntry) (map[uint32]string, error) {
	names := map[uint32]string{}
	for _, e := range entries {
		if e.symbol != 0 {
			names[e.symbol] = ""
		}
	}
	s := m.SectionOfType(elffile.SHT_DYNSYM)
	if s == nil || len(names) == 0 {
		return names, nil
	}
	text, err := NamesOf(m, s)
	if err != nil {
		return nil, err
	}
	number, room := uint32(0), roomForNames(text)
	err = m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
		symbol := m.ParseSymbol(c.Bytes(m.Size(16, 24)))
		if _, ok := names[number]; ok {
			name := elffile.BeginningAt(text, symbol.Name)
			if room -= len(name); room >= 0 {
				names[number] = strings.Clone(name)
			}
		}
		number++
	})
	if err == nil && room < 0 {
		err = m.Fail(s.Offset, longNames)
	}
	return names, err
}

// resolverNames returns the names of the functions that entries jump to once another
// function has chosen them: those of the latter as a symbol of type STT_GNU_IFUNC.
func resolverNames(m *elffile.Image, entries []pltEntry) (map[uint64]string, error) {
	names := map[uint64]string{}
	for _, e := range entries {
		if e.symbol == 0 && e.resolver != 0 {
			names[e.resolver] = ""
		}
	}
	s := cmp.Or(m.SectionOfType(elffile.SHT_SYMTAB), m.SectionOfType(elffile.SHT_DYNSYM))
	if s == nil || len(names) == 0 {
		return names, nil
	}
	text, err := NamesOf(m, s)
	if err != nil {
		return nil, err
	}
	room := roomForNames(text)
	err = m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
		symbol := m.ParseSymbol(c.Bytes(m.Size(16, 24)))
		known, ok := names[symbol.Value]
		if !ok || symbol.Type() != elffile.STT_GNU_IFUNC {
			return
		}
		name := elffile.BeginningAt(text, symbol.Name)
		if known == "" || CompareNames(name, known) < 0 {
			if room -= len(name) - len(known); room >= 0 {
				names[symbol.Value] = strings.Clone(name)
			}
		}
	})
	if err == nil && room < 0 {
		err = m.Fail(s.Offset, longNames)
	}
	return names, err
}
