package symbol

import (
	"encoding/binary"
	"slices"
	"strings"
)

// pclntabSection returns the section that holds a pclntab. A relocatable file has
// one that is not finished.
func (m *image) pclntabSection() *section {
	if m.rel {
		return nil
	}
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := m.section(name); s != nil {
			return s
		}
	}
	if m.section(".note.go.buildid") != nil {
		return m.section(mixedData)
	}
	return nil
}

// mixedData is the section in which, up to Go 1.25, a C linker put the pclntab of
// a position-independent program together with other data.
const mixedData = ".data.rel.ro"

// loadPclntab reads the pclntab in section s.
func (m *image) loadPclntab(s *section) (*pclntab, error) {
	data, err := m.readString(s.off, s.size)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if s.name == mixedData {
		places = pclntabHeaders(data, m.big)
	}
	err = m.fail(s.off, "no pclntab found")
	for _, at := range places {
		var t *pclntab
		if t, err = m.newPclntab(data[at:], s.addr+at, s.off+at); err == nil {
			return t, nil
		}
	}
	return nil, err
}

// pclntabHeaders returns where data has the magic of a pclntab. What only looks like
// one has no moduledata that agrees.
func pclntabHeaders(data string, big bool) []uint64 {
	var found []uint64
	for _, magic := range []uint32{go120magic, go118magic} {
		pattern := string(binary.LittleEndian.AppendUint32(nil, magic)) + "\x00\x00"
		if big {
			pattern = string(binary.BigEndian.AppendUint32(nil, magic)) + "\x00\x00"
		}
		for at := 0; len(found) < maxCandidates; at++ {
			next := strings.Index(data[at:], pattern)
			if next < 0 {
				break
			}
			at += next
			found = append(found, uint64(at))
		}
	}
	return found
}

// newPclntab returns the pclntab at the start of data, which is at address at and
// at offset off of the file.
func (m *image) newPclntab(data string, at, off uint64) (*pclntab, error) {
	t := &pclntab{data: data, words: words{big: m.big}}
	if !t.parseHeader() {
		return nil, m.fail(off, "pclntab of an unknown form")
	}
	if t.isRelative() {
		md, err := m.findModuledata(t, at)
		switch {
		case err != nil:
			return nil, err
		case md == nil:
			return nil, m.fail(off, "no moduledata agrees with this pclntab")
		}
		t.useModuledata(md)
	}
	if !t.isSound(m) {
		return nil, m.fail(off, "pclntab does not describe the code of its file")
	}
	return t, m.loadTrees(t, at)
}

// parseHeader finds the tables (runtime/symtab.go, pcHeader).
func (t *pclntab) parseHeader() bool {
	if len(t.data) < 8 {
		return false
	}
	t.magic = t.u32(t.data, 0)
	t.quantum, t.ptr = uint64(t.data[6]), uint64(t.data[7])
	if t.data[4] != 0 || t.data[5] != 0 || t.quantum == 0 || t.quantum > 4 || t.ptr != 4 && t.ptr != 8 {
		return false
	}
	t.nfunc = t.header(0)
	ok := true
	switch t.magic {
	case go12magic:
		ok = t.parseGo12()
	case go116magic:
		ok = t.parseTables(2)
	case go118magic, go120magic:
		ok = t.parseTables(3)
	default:
		ok = false
	}
	t.names = t.names[:strings.LastIndexByte(t.names, 0)+1] // so every name has an end
	return ok && t.nfunc < uint64(len(t.functab))/(2*t.entrySize())
}

// header returns the nth address-sized number of the header.
func (t *pclntab) header(n uint64) uint64 { return t.word(t.data, 8+n*t.ptr, t.ptr) }

// parseTables finds the tables from n on in the header: names, files by
// compilation unit, files, values by program counter, functions.
func (t *pclntab) parseTables(n uint64) bool {
	at := [...]uint64{t.header(n), t.header(n + 1), t.header(n + 2), t.header(n + 3), t.header(n + 4), uint64(len(t.data))}
	if !slices.IsSorted(at[:]) {
		return false
	}
	t.names = t.data[at[0]:at[1]]
	t.cus = t.data[at[1]:at[2]]
	t.files = t.data[at[2]:at[3]]
	t.pcs = t.data[at[3]:at[4]]
	t.functab = t.data[at[4]:]
	t.records = t.functab
	return true
}

// parseGo12 finds the tables of the first form, where offsets are from the start
// of the section (https://golang.org/s/go12symtab).
func (t *pclntab) parseGo12() bool {
	first := 8 + t.ptr
	if t.nfunc > uint64(len(t.data)) || first+(2*t.nfunc+1)*t.ptr+4 > uint64(len(t.data)) {
		return false
	}
	t.functab = t.data[first:]
	files := t.u32(t.functab, (2*t.nfunc+1)*t.ptr)
	if uint64(files) > uint64(len(t.data)) {
		return false
	}
	t.files = t.data[files:]
	t.records, t.names, t.pcs = t.data, t.data, t.data
	return true
}

// isSound checks that functions follow each other within one section of code, and
// that each has a record and a name.
func (t *pclntab) isSound(m *image) bool {
	if t.nfunc == 0 || !m.isText(t.entry(0), t.entry(t.nfunc)) {
		return false
	}
	for i := range t.nfunc {
		f := t.function(i)
		if f.end < f.entry || !t.hasRecord(i) || !t.isName(f.name) {
			return false
		}
	}
	return true
}

// hasRecord reports whether the record of function i is there as a whole.
func (t *pclntab) hasRecord(i uint64) bool {
	size, n := t.entrySize()+4*t.recordWords(), uint64(len(t.records))
	return n >= size && t.record(i) <= n-size
}

// isName reports whether a name starts at off. In the first form names follow
// something that is no name.
func (t *pclntab) isName(off uint32) bool {
	if uint64(off) >= uint64(len(t.names)) || t.names[off] == 0 {
		return false
	}
	return t.magic == go12magic || off == 0 || t.names[off-1] == 0
}
