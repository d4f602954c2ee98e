package elffile

import (
	"cmp"
	"slices"

	"hallmark/internal/cursor"
	"hallmark/internal/pclntab"
)

// Loaded is an image as the dynamic loader leaves it.
type Loaded struct{ *Image }

// PclntabSections returns the sections of which one holds the pclntab of a Go program, and whether it holds
// other data too; none where there is none. A relocatable file has one that is not finished. Where there are
// no section headers, it can be in every part of memory, and data come first.
func (m *Image) PclntabSections() (sections []*Section, mixed bool) {
	switch {
	case m.Relocatable:
		return nil, false
	case m.Headerless:
		if !m.hasGoNote() {
			return nil, false
		}
		sections = m.Disjoint(SHT_PROGBITS, SHF_ALLOC)
		slices.SortStableFunc(sections, func(a, b *Section) int {
			return cmp.Compare(a.Flags&SHF_EXECINSTR, b.Flags&SHF_EXECINSTR)
		})
		return sections, true
	}
	for _, name := range pclntab.Sections {
		if s := m.Section(name); s != nil {
			return []*Section{s}, false
		}
	}
	if s := m.Section(pclntab.MixedSection); s != nil && m.Section(pclntab.BuildIDNote) != nil {
		return []*Section{s}, true
	}
	return nil, false
}

// PointersTo returns where writable data holds this address once it is loaded.
func (m Loaded) PointersTo(target uint64) ([]uint64, error) {
	var found []uint64
	note := func(v uint64) {
		if len(found) < pclntab.MaxCandidates {
			found = append(found, v)
		}
	}
	for _, s := range m.Disjoint(SHT_PROGBITS, SHF_ALLOC|SHF_WRITE) {
		err := m.EachEntry(s, m.Size(4, 8), func(c *cursor.Cursor) {
			v := s.Addr + uint64(c.Offset()) - s.Offset
			if m.Word(c) == target {
				note(v)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	err := m.eachRelative(func(v, value uint64) {
		if value == target {
			note(v)
		}
	})
	return found, err
}

// WordsAt returns n address-sized words of memory at v as the dynamic loader
// leaves them in a program loaded where it was linked to be; nil where the file
// has no such memory.
func (m Loaded) WordsAt(v uint64, n int) ([]uint64, error) {
	size := m.Size(4, 8)
	s := m.SectionAt(v, uint64(n)*size)
	if s == nil {
		return nil, nil
	}
	data, err := m.Read(s.Offset+v-s.Addr, uint64(n)*size)
	if err != nil {
		return nil, err
	}
	c := m.Cursor(data, 0)
	memory := make([]uint64, n)
	for i := range memory {
		memory[i] = m.Word(&c)
	}
	err = m.eachRelative(func(at, value uint64) {
		if i := (at - v) / size; at >= v && i < uint64(n) {
			memory[i] = value
		}
	})
	return memory, err
}

// eachRelative calls f for every place that the dynamic loader fills with an
// address of this file, and with that address. Such a relocation has no symbol,
// whatever number the machine gives its type. Machines that keep the address in
// the place itself (Elf32_Rel, RELR) need none of this.
func (m *Image) eachRelative(f func(at, value uint64)) error {
	for _, s := range m.Disjoint(SHT_RELA, SHF_ALLOC) {
		err := m.EachEntry(s, m.Size(12, 24), func(c *cursor.Cursor) {
			at, info, addend := m.Word(c), m.Word(c), m.Word(c)
			if info>>m.Size(8, 32) == 0 {
				f(at, addend)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
