package symbol

import "hallmark/internal/pclntab"

// pclntabSection returns the section that holds a pclntab. A relocatable file has
// one that is not finished.
func (m *image) pclntabSection() *section {
	if m.rel {
		return nil
	}
	for _, name := range pclntab.Sections {
		if s := m.section(name); s != nil {
			return s
		}
	}
	if m.section(pclntab.BuildIDNote) != nil {
		return m.section(pclntab.MixedSection)
	}
	return nil
}

// loadPclntab reads the pclntab in section s.
func (m *image) loadPclntab(s *section) (*goTable, error) {
	data, err := m.readString(s.off, s.size)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if s.name == pclntab.MixedSection {
		places = pclntab.Headers(data, m.big)
	}
	err = m.fail(s.off, "no pclntab found")
	for _, at := range places {
		var t *goTable
		if t, err = m.newPclntab(data[at:], s.addr+at, s.off+at); err == nil {
			return t, nil
		}
	}
	return nil, err
}

// newPclntab returns the pclntab at the start of data, which is at address at and
// at offset off of the file.
func (m *image) newPclntab(data string, at, off uint64) (*goTable, error) {
	table, ok := pclntab.Parse(data, m.big)
	if !ok {
		return nil, m.fail(off, "pclntab of an unknown form")
	}
	t := &goTable{Table: table}
	if t.IsRelative() {
		md, err := t.Locate(at, loadedImage{m})
		switch {
		case err != nil:
			return nil, err
		case md == nil:
			return nil, m.fail(off, "no moduledata agrees with this pclntab")
		}
		t.trees.gofunc = md[pclntab.MDGofunc120]
		if t.Magic == pclntab.Go118 {
			t.trees.gofunc = md[pclntab.MDGofunc118]
		}
	}
	if !t.IsSound(m.isText) {
		return nil, m.fail(off, "pclntab does not describe the code of its file")
	}
	return t, m.loadTrees(t, at)
}
