package symbol

import (
	"cmp"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// pltSuffix is what a function's name has behind it where the code is the entry that
// jumps to the function, as objdump and perf write it.
const pltSuffix = "@plt"

// A pltEntry is code that jumps through a slot of the global offset table.
type pltEntry struct {
	start, end uint64
	slot       uint64
	relocated  bool
	symbol     uint32 // whose address the dynamic linker puts there, 0 for none
	resolver   uint64 // or the function that returns what is put there, 0 for none
}

// pltSections returns the procedure linkage tables whose code is understood.
func (m *image) pltSections() []*section {
	if pltMachines[m.machine] == nil || m.is64 != (m.machine != emX86) || m.big || m.rel {
		return nil
	}
	return slices.DeleteFunc(m.disjoint(shtPROGBITS, shfALLOC|shfEXECINSTR), func(s *section) bool {
		switch s.name {
		case ".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt":
			return false
		}
		return true
	})
}

// loadPLT names the entries of the procedure linkage tables, or has nothing to say if
// there are addresses and none is in a table. No symbol table knows these entries.
//
// Which function an entry jumps to is not told by its place: linkers leave entries
// out, and have tables of several kinds with an order of their own. It is told by the
// slot that the code jumps through, and the relocation of this slot.
func (m *image) loadPLT(addresses []addr.Virt) (*symtab, error) {
	sections := m.pltSections()
	if addresses != nil && !slices.ContainsFunc(addresses, func(v addr.Virt) bool { return anyContains(sections, uint64(v)) }) {
		return new(symtab), nil
	}
	var entries []pltEntry
	for _, s := range sections {
		code, err := m.read(s.off, s.size)
		if err != nil {
			return nil, err
		}
		entries = m.appendEntries(entries, s, code)
	}
	slices.SortFunc(entries, func(a, b pltEntry) int { return cmp.Compare(a.slot, b.slot) })
	if err := m.relocateSlots(entries); err != nil {
		return nil, err
	}
	return m.nameEntries(entries)
}

func anyContains(sections []*section, v uint64) bool {
	return slices.ContainsFunc(sections, func(s *section) bool { return s.contains(v) })
}

// appendEntries appends the entries in section s.
func (m *image) appendEntries(entries []pltEntry, s *section, code []byte) []pltEntry {
	machine, got := pltMachines[m.machine], m.gotAddress()
	for off := 0; off < len(code); {
		at := s.addr + uint64(off)
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
func (m *image) gotAddress() uint64 {
	for _, name := range []string{".got.plt", ".got"} {
		if s := m.section(name); s != nil {
			return s.addr
		}
	}
	return 0
}

// relocateSlots finds out what the dynamic linker puts into the slots of the entries,
// which are sorted by slot.
func (m *image) relocateSlots(entries []pltEntry) error {
	for _, typ := range []uint32{shtRELA, shtREL} {
		for _, s := range m.disjoint(typ, shfALLOC) {
			entry := m.size(8, 16)
			if typ == shtRELA {
				entry = m.size(12, 24)
			}
			err := m.eachEntry(s, entry, func(c *cursor.Cursor) { m.relocateSlot(c, s, entries) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// relocateSlot reads a relocation of section s.
func (m *image) relocateSlot(c *cursor.Cursor, s *section, entries []pltEntry) {
	slot, info := m.word(c), m.word(c)
	addend := uint64(0)
	if s.typ == shtRELA {
		addend = m.word(c)
	}
	symbol, typ := uint32(info>>32), uint32(info)
	if !m.is64 {
		symbol, typ = uint32(info>>8), uint32(info&0xff)
	}
	machine := pltMachines[m.machine]
	if typ != machine.globDat && typ != machine.jumpSlot && typ != machine.irelative {
		return
	}
	i, _ := slices.BinarySearchFunc(entries, slot, func(e pltEntry, slot uint64) int { return cmp.Compare(e.slot, slot) })
	for ; i < len(entries) && entries[i].slot == slot && !entries[i].relocated; i++ {
		entries[i].relocated = true
		switch {
		case typ != machine.irelative && m.isDynsym(s.link):
			entries[i].symbol = symbol
		case typ == machine.irelative && s.typ == shtRELA:
			entries[i].resolver = addend
		case typ == machine.irelative:
			entries[i].resolver = m.wordAt(slot)
		}
	}
}

func (m *image) isDynsym(index uint32) bool {
	return uint64(index) < uint64(len(m.sections)) && &m.sections[index] == m.sectionOfType(shtDYNSYM)
}

// wordAt returns the address-sized number at a virtual address, 0 where there is none.
func (m *image) wordAt(v uint64) uint64 {
	size := m.size(4, 8)
	s := m.sectionAt(v, size)
	if s == nil {
		return 0
	}
	data, err := m.read(s.off+v-s.addr, size)
	if err != nil {
		return 0
	}
	c := m.cursor(data, 0)
	return m.word(&c)
}

// nameEntries returns the table of the entries whose functions have names.
func (m *image) nameEntries(entries []pltEntry) (*symtab, error) {
	symbols, err := m.dynamicNames(entries)
	if err != nil {
		return nil, err
	}
	resolvers, err := m.resolverNames(entries)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b pltEntry) int { return cmp.Compare(a.start, b.start) })
	t, names := new(symtab), nameTable{}
	for _, e := range entries {
		name := symbols[e.symbol]
		if name == "" {
			name = resolvers[e.resolver]
		}
		if name != "" {
			t.ranges.Add(e.start, e.end, names.add([]byte(unversioned(name)+pltSuffix)))
		}
	}
	t.names = names.String()
	return t, nil
}

// dynamicNames returns the names of the symbols of .dynsym that entries jump to.
func (m *image) dynamicNames(entries []pltEntry) (map[uint32]string, error) {
	names := map[uint32]string{}
	for _, e := range entries {
		if e.symbol != 0 {
			names[e.symbol] = ""
		}
	}
	s := m.sectionOfType(shtDYNSYM)
	if s == nil || len(names) == 0 {
		return names, nil
	}
	text, err := m.symbolNames(s)
	if err != nil {
		return nil, err
	}
	number := uint32(0)
	err = m.eachEntry(s, m.size(16, 24), func(c *cursor.Cursor) {
		symbol := m.parseSymbol(c.Bytes(m.size(16, 24)))
		if _, ok := names[number]; ok {
			names[number] = strings.Clone(beginningAt(text, symbol.name))
		}
		number++
	})
	return names, err
}

// resolverNames returns the names of the functions that entries jump to once another
// function has chosen them: those of the latter as a symbol of type STT_GNU_IFUNC.
func (m *image) resolverNames(entries []pltEntry) (map[uint64]string, error) {
	names := map[uint64]string{}
	for _, e := range entries {
		if e.symbol == 0 && e.resolver != 0 {
			names[e.resolver] = ""
		}
	}
	s := cmp.Or(m.sectionOfType(shtSYMTAB), m.sectionOfType(shtDYNSYM))
	if s == nil || len(names) == 0 {
		return names, nil
	}
	text, err := m.symbolNames(s)
	if err != nil {
		return nil, err
	}
	err = m.eachEntry(s, m.size(16, 24), func(c *cursor.Cursor) {
		symbol := m.parseSymbol(c.Bytes(m.size(16, 24)))
		known, ok := names[symbol.value]
		if !ok || symbol.info&0xf != sttGNUIFUNC {
			return
		}
		name := beginningAt(text, symbol.name)
		if known == "" || compareNames(name, known) < 0 {
			names[symbol.value] = strings.Clone(name)
		}
	})
	return names, err
}
