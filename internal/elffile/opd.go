package elffile

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// descriptors are what .opd of 64-bit PowerPC has (ELFv1 ABI, "Function Descriptors"): the
// symbol of a function leads there, and the first word there to its code.
type descriptors struct {
	section uint32 // number of .opd
	data    []byte // its contents; nil if they are not known
	text    []int  // numbers of the sections of code, by address
}

// descriptors returns those of the file, nil where symbols lead to code. They are read once.
func (m *Image) descriptors() *descriptors {
	if m.Machine != emPPC64 || !m.Is64 {
		return nil
	}
	m.readingOPD.Do(func() {
		number := slices.IndexFunc(m.Sections, func(s Section) bool { return s.Name == ".opd" })
		if number < 0 {
			return
		}
		m.opd = &descriptors{section: uint32(number), data: m.descriptorData(&m.Sections[number])}
		for i := range m.Sections {
			if m.Sections[i].IsText() {
				m.opd.text = append(m.opd.text, i)
			}
		}
		slices.SortStableFunc(m.opd.text, func(a, b int) int { return cmp.Compare(m.Sections[a].Addr, m.Sections[b].Addr) })
	})
	return m.opd
}

// MovesSymbols reports whether values of symbols may be other numbers than their addresses.
func (m *Image) MovesSymbols() bool { return m.Relocatable || m.Arm || m.descriptors() != nil }

// descriptorData returns the contents of .opd, nil if they are damaged. A debug file has
// them in the program that it was made from.
func (m *Image) descriptorData(s *Section) []byte {
	if m.Program != nil {
		if d := m.Program.descriptors(); d != nil && d.data != nil {
			return d.data
		}
	}
	if s.Type == SHT_NOBITS {
		return nil
	}
	data, err := m.Read(s.Offset, s.Size)
	if err == nil && m.Relocatable {
		data, err = m.relocate(s, data)
	}
	if err != nil {
		return nil
	}
	return data
}

// Dereference lets the symbol of a function that leads to a descriptor lead to its code. If
// that is not known, the symbol is in no section.
func (m *Image) Dereference(s *Symbol) {
	d := m.descriptors()
	if d == nil || s.Section != d.section || s.Type() != STT_FUNC && s.Type() != STT_GNU_IFUNC {
		return
	}
	at := s.Value
	if !m.Relocatable {
		at -= m.Sections[d.section].Addr
	}
	s.Section = noSection
	if size := uint64(len(d.data)); size < 8 || at > size-8 {
		return
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if m.Big {
		order = binary.BigEndian
	}
	v := order.Uint64(d.data[at:])
	i := sort.Search(len(d.text), func(i int) bool { return m.Sections[d.text[i]].Addr > v })
	if i == 0 || !m.Sections[d.text[i-1]].Contains(v) {
		return
	}
	s.Section, s.Value = uint32(d.text[i-1]), v
	if m.Relocatable {
		s.Value -= m.Sections[s.Section].Addr
	}
}
