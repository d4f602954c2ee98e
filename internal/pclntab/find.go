package pclntab

import (
	"encoding/binary"
	"strings"
)

// Sections names those that a linker puts the table in, and nothing else: Go's linker,
// and in position-independent programs a C linker.
var Sections = [...]string{".gopclntab", ".data.rel.ro.gopclntab"}

// MixedSection is the section in which, up to Go 1.25, a C linker put the table of a
// position-independent program together with other data. Such a program has BuildIDNote.
const (
	MixedSection = ".data.rel.ro"
	BuildIDNote  = ".note.go.buildid"
)

// MaxCandidates bounds what is looked at that could be a table or point to one. A
// program has one or two.
const MaxCandidates = 8

// Headers returns where data has what looks like the header of a table, those of new forms first. Whether it is
// one, moduledata says, or the functions that it has.
func Headers(data string, big bool) []uint64 {
	var found []uint64
	for _, magic := range []uint32{Go120, Go118, Go116, Go12} {
		pattern := string(binary.LittleEndian.AppendUint32(nil, magic)) + "\x00\x00"
		if big {
			pattern = string(binary.BigEndian.AppendUint32(nil, magic)) + "\x00\x00"
		}
		for at := 0; len(found) < MaxCandidates; at++ {
			next := strings.Index(data[at:], pattern)
			if next < 0 {
				break
			}
			if at += next; len(data)-at >= 8 && isShape(data[at+6], data[at+7]) {
				found = append(found, uint64(at))
			}
		}
	}
	return found
}

// isShape reports whether a table can be of these: the quantum of addresses, and their bytes.
func isShape(quantum, ptr byte) bool {
	return (quantum == 1 || quantum == 2 || quantum == 4) && (ptr == 4 || ptr == 8)
}

// Indices of the words of runtime.moduledata (runtime/symtab.go), the same since
// Go 1.16 up to the text.
const (
	MDPCHeader  = 0
	MDNames     = 1
	MDCUs       = 4
	MDFiles     = 7
	MDPCs       = 10
	MDRecords   = 13
	MDFunctab   = 16
	MDFunctabN  = 17
	MDMinPC     = 20
	MDMaxPC     = 21
	MDText      = 22
	MDEtext     = 23
	MDGofunc118 = 38
	MDGofunc120 = 40 // two more words, for coverage counters, came before it
	MDWords     = 41
)

// A Memory is a program as the dynamic loader leaves it where it was linked to be.
type Memory interface {
	// PointersTo returns where writable data holds this address, at most MaxCandidates.
	PointersTo(target uint64) ([]uint64, error)
	// WordsAt returns n address-sized words at v; nil where the file has no such memory.
	WordsAt(v uint64, n int) ([]uint64, error)
}

// Locate sets Text of a table at address at whose addresses are relative. It returns the
// words of runtime.moduledata, which says where the text is; nil if there is none, and
// then nothing is set. Moduledata has no fixed place, and no name in a stripped program;
// but it starts with a pointer to the table, and so much of it follows from the table
// that it cannot be mistaken.
func (t *Table) Locate(at uint64, m Memory) ([]uint64, error) {
	candidates, err := m.PointersTo(at)
	if err != nil {
		return nil, err
	}
	for _, v := range candidates {
		md, err := m.WordsAt(v, MDWords)
		if err != nil {
			return nil, err
		}
		if len(md) == MDWords && t.agrees(md, at) {
			t.Text = md[MDText]
			return md, nil
		}
	}
	return nil, nil
}

// agrees reports whether md can be the moduledata of t, which is at address at.
func (t *Table) agrees(md []uint64, at uint64) bool {
	header := func(i uint64) uint64 { return at + t.Header(i) }
	text := md[MDText]
	return md[MDPCHeader] == at &&
		md[MDNames] == header(3) &&
		md[MDCUs] == header(4) &&
		md[MDFiles] == header(5) &&
		md[MDPCs] == header(6) &&
		md[MDRecords] == header(7) &&
		md[MDFunctab] == header(7) &&
		md[MDFunctabN] == t.NFunc+1 &&
		md[MDMinPC] == text+uint64(t.U32(t.Functab, 0)) &&
		md[MDMaxPC] == text+uint64(t.U32(t.Functab, 8*t.NFunc)) &&
		text <= md[MDMinPC] && md[MDMinPC] <= md[MDMaxPC] && md[MDMaxPC] <= md[MDEtext]
}
