package symbol

import "hallmark/internal/cursor"

// Indices of the words of runtime.moduledata (runtime/symtab.go), the same since
// Go 1.16 up to the text.
const (
	mdPCHeader  = 0
	mdNames     = 1
	mdCUs       = 4
	mdFiles     = 7
	mdPCs       = 10
	mdRecords   = 13
	mdFunctab   = 16
	mdFunctabN  = 17
	mdMinPC     = 20
	mdMaxPC     = 21
	mdText      = 22
	mdEtext     = 23
	mdGofunc118 = 38
	mdGofunc120 = 40 // two more words, for coverage counters, came before it
	mdWords     = 41
)

// maxCandidates bounds what is looked at that could be a pclntab or point to one. A
// program has one or two.
const maxCandidates = 8

// findModuledata returns the words of runtime.moduledata, which says where the text
// is that functions are relative to, and the inline trees; nil if there is none. It
// has no fixed place, and no name in a stripped program; but it starts with a
// pointer to the pclntab, which is at address at, and so much of it follows from the
// pclntab that it cannot be mistaken.
func (m *image) findModuledata(t *pclntab, at uint64) ([]uint64, error) {
	candidates, err := m.pointersTo(at)
	if err != nil {
		return nil, err
	}
	for _, v := range candidates {
		md, err := m.wordsAt(v, mdWords)
		if err != nil {
			return nil, err
		}
		if md != nil && t.agrees(md, at) {
			return md, nil
		}
	}
	return nil, nil
}

// useModuledata takes from the words of moduledata what t lacks.
func (t *pclntab) useModuledata(md []uint64) {
	t.text, t.trees.gofunc = md[mdText], md[mdGofunc120]
	if t.magic == go118magic {
		t.trees.gofunc = md[mdGofunc118]
	}
}

// agrees reports whether md can be the moduledata of t, which is at address at.
func (t *pclntab) agrees(md []uint64, at uint64) bool {
	header := func(i uint64) uint64 { return at + t.header(i) }
	text := md[mdText]
	return md[mdPCHeader] == at &&
		md[mdNames] == header(3) &&
		md[mdCUs] == header(4) &&
		md[mdFiles] == header(5) &&
		md[mdPCs] == header(6) &&
		md[mdRecords] == header(7) &&
		md[mdFunctab] == header(7) &&
		md[mdFunctabN] == t.nfunc+1 &&
		md[mdMinPC] == text+uint64(t.u32(t.functab, 0)) &&
		md[mdMaxPC] == text+uint64(t.u32(t.functab, 8*t.nfunc)) &&
		text <= md[mdMinPC] && md[mdMinPC] <= md[mdMaxPC] && md[mdMaxPC] <= md[mdEtext]
}

// pointersTo returns where writable data holds this address once it is loaded.
func (m *image) pointersTo(target uint64) ([]uint64, error) {
	var found []uint64
	note := func(v uint64) {
		if len(found) < maxCandidates {
			found = append(found, v)
		}
	}
	for _, s := range m.disjoint(shtPROGBITS, shfALLOC|shfWRITE) {
		err := m.eachEntry(s, m.size(4, 8), func(c *cursor.Cursor) {
			v := s.addr + uint64(c.Offset()) - s.off
			if m.word(c) == target {
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

// wordsAt returns n address-sized words of memory at v as the dynamic loader
// leaves them in a program loaded where it was linked to be; nil where the file
// has no such memory.
func (m *image) wordsAt(v uint64, n int) ([]uint64, error) {
	size := m.size(4, 8)
	s := m.sectionAt(v, uint64(n)*size)
	if s == nil {
		return nil, nil
	}
	data, err := m.read(s.off+v-s.addr, uint64(n)*size)
	if err != nil {
		return nil, err
	}
	c := m.cursor(data, 0)
	memory := make([]uint64, n)
	for i := range memory {
		memory[i] = m.word(&c)
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
func (m *image) eachRelative(f func(at, value uint64)) error {
	for _, s := range m.disjoint(shtRELA, shfALLOC) {
		err := m.eachEntry(s, m.size(12, 24), func(c *cursor.Cursor) {
			at, info, addend := m.word(c), m.word(c), m.word(c)
			if info>>m.size(8, 32) == 0 {
				f(at, addend)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
