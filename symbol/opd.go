package symbol

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
func (m *image) descriptors() *descriptors {
	if m.machine != emPPC64 || !m.is64 {
		return nil
	}
	m.readingOPD.Do(func() {
		number := slices.IndexFunc(m.sections, func(s section) bool { return s.name == ".opd" })
		if number < 0 {
			return
		}
		m.opd = &descriptors{section: uint32(number), data: m.descriptorData(&m.sections[number])}
		for i := range m.sections {
			if m.sections[i].isText() {
				m.opd.text = append(m.opd.text, i)
			}
		}
		slices.SortStableFunc(m.opd.text, func(a, b int) int { return cmp.Compare(m.sections[a].addr, m.sections[b].addr) })
	})
	return m.opd
}

// descriptorData returns the contents of .opd, nil if they are damaged. A debug file has
// them in the program that it was made from.
func (m *image) descriptorData(s *section) []byte {
	if m.program != nil {
		if d := m.program.descriptors(); d != nil && d.data != nil {
			return d.data
		}
	}
	if s.typ == shtNOBITS {
		return nil
	}
	data, err := m.read(s.off, s.size)
	if err == nil && m.rel {
		data, err = m.relocate(s, data)
	}
	if err != nil {
		return nil
	}
	return data
}

// dereference lets the symbol of a function that leads to a descriptor lead to its code. If
// that is not known, the symbol is in no section.
func (m *image) dereference(s *elfSymbol) {
	d := m.descriptors()
	if d == nil || s.section != d.section || s.info&0xf != sttFUNC && s.info&0xf != sttGNUIFUNC {
		return
	}
	at := s.value
	if !m.rel {
		at -= m.sections[d.section].addr
	}
	s.section = noSection
	if size := uint64(len(d.data)); size < 8 || at > size-8 {
		return
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if m.big {
		order = binary.BigEndian
	}
	v := order.Uint64(d.data[at:])
	i := sort.Search(len(d.text), func(i int) bool { return m.sections[d.text[i]].addr > v })
	if i == 0 || !m.sections[d.text[i-1]].contains(v) {
		return
	}
	s.section, s.value = uint32(d.text[i-1]), v
	if m.rel {
		s.value -= m.sections[s.section].addr
	}
}
