package symbol

import (
	"hallmark/internal/elffile"
	"hallmark/internal/pclntab"
)

// loadPclntab reads the pclntab in section s.
func loadPclntab(m *elffile.Image, s *elffile.Section) (*goTable, error) {
	data, err := m.ReadString(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if s.Name == pclntab.MixedSection {
		places = pclntab.Headers(data, m.Big)
	}
	err = m.Fail(s.Offset, "no pclntab found")
	for _, at := range places {
		var t *goTable
		if t, err = newPclntab(m, data[at:], s.Addr+at, s.Offset+at); err == nil {
			return t, nil
		}
	}
	return nil, err
}

// newPclntab returns the pclntab at the start of data, which is at address at and
// at offset off of the file.
func newPclntab(m *elffile.Image, data string, at, off uint64) (*goTable, error) {
	table, ok := pclntab.Parse(data, m.Big)
	if !ok {
		return nil, m.Fail(off, "pclntab of an unknown form")
	}
	t := &goTable{Table: table}
	if t.IsRelative() {
		md, err := t.Locate(at, elffile.Loaded{Image: m})
		switch {
		case err != nil:
			return nil, err
		case md == nil:
			return nil, m.Fail(off, "no moduledata agrees with this pclntab")
		}
		t.trees.gofunc = md[pclntab.MDGofunc120]
		if t.Magic == pclntab.Go118 {
			t.trees.gofunc = md[pclntab.MDGofunc118]
		}
	}
	if !t.IsSound(m.IsText) {
		return nil, m.Fail(off, "pclntab does not describe the code of its file")
	}
	return t, loadTrees(m, t, at)
}
