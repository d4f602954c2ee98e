package symbol

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/ranges"
)

// Symbol types and bindings, under the names the gABI gives them.
const (
	sttNOTYPE   = 0
	sttOBJECT   = 1
	sttFUNC     = 2
	sttGNUIFUNC = 10

	stbLOCAL = 0
)

// symtab answers from an ELF symbol table by the rules of the package comment.
type symtab struct {
	ranges ranges.List // values are offsets in names
	names  string
}

func (t *symtab) find(v addr.Virt) []Frame {
	name := t.nameAt(v)
	if name == "" {
		return nil
	}
	return []Frame{{Linkage: name}}
}

// nameAt returns the name of the symbol at an address, "" without one.
func (t *symtab) nameAt(v addr.Virt) string {
	i, ok := t.ranges.Find(uint64(v))
	if !ok {
		return ""
	}
	return t.name(i)
}

// name returns the name of the range with this index.
func (t *symtab) name(i int) string { return unversioned(stringAt(t.names, t.ranges.Values[i])) }

// unversioned returns the name without the symbol version that linkers append
// in .symtab: "memcpy" for "memcpy@@GLIBC_2.14". What an entry of a procedure linkage
// table is called has none.
func unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 && name[i:] != pltSuffix {
		return name[:i]
	}
	return name
}

// loadSymtab reads the symbol table in section s, or of it what answers for some
// addresses, if there are any.
func (m *image) loadSymtab(s *section, addresses []addr.Virt) (*symtab, error) {
	if len(addresses) > 0 {
		return m.loadSymbols(s, addresses)
	}
	spans, names, err := m.allSymbols(s)
	if err != nil {
		return nil, err
	}
	return newSymtab(spans, names), nil
}

// loadSymbols reads of the symbol table in section s what answers for some addresses. It
// looks at table and names where they are in the file, as most of them are of no interest.
func (m *image) loadSymbols(s *section, addresses []addr.Virt) (*symtab, error) {
	var views debugData
	defer views.close()
	entries, err := m.viewTable(&views, s)
	if err != nil {
		return nil, err
	}
	strtab, err := m.namesOf(s)
	if err != nil {
		return nil, err
	}
	text, err := m.viewTable(&views, strtab)
	if err != nil {
		return nil, err
	}
	var t *symtab
	err = m.whileMapped(func() error {
		names := complete(unsafe.String(unsafe.SliceData(text), len(text)))
		spans, err := m.symbolsAt(s, entries, names, addresses)
		if err == nil {
			t = newSymtab(spans, names)
			t.compact()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// viewTable returns the bytes of a section of limited size, until views is closed.
func (m *image) viewTable(views *debugData, s *section) ([]byte, error) {
	if err := m.check(s.off, s.size); err != nil {
		return nil, err
	}
	return m.view(views, s)
}

// newSymtab returns the table of symbols in any order, whose values are offsets in
// names.
func newSymtab(spans []ranges.Span, names string) *symtab {
	return &symtab{ranges.Flatten(ranges.SettleUnsized(ranges.SortByStart(spans)), preference(names)), names}
}

// symbolNames returns the string table of the symbol table in section s.
func (m *image) symbolNames(s *section) (string, error) {
	strtab, err := m.namesOf(s)
	if err != nil {
		return "", err
	}
	names, err := m.readString(strtab.off, strtab.size)
	return complete(names), err
}

// namesOf returns the section with the names of the symbol table in section s.
func (m *image) namesOf(s *section) (*section, error) {
	if uint64(s.link) >= uint64(len(m.sections)) {
		return nil, m.fail(s.off, "symbol table without a string table")
	}
	return &m.sections[s.link], nil
}

// complete returns names up to the end of the last one that has an end.
func complete(names string) string { return names[:strings.LastIndexByte(names, 0)+1] }

// compact lets go of the names that nothing needs.
func (t *symtab) compact() {
	var kept strings.Builder
	for i, off := range t.ranges.Values {
		t.ranges.Values[i] = uint32(kept.Len())
		kept.WriteString(stringAt(t.names, off))
		kept.WriteByte(0)
	}
	t.names = kept.String()
}

// allSymbols returns the symbols of code in section s, if there is one, and its
// string table, in which their values are offsets.
func (m *image) allSymbols(s *section) ([]ranges.Span, string, error) {
	if s == nil {
		return nil, "", nil
	}
	names, err := m.symbolNames(s)
	if err != nil {
		return nil, "", err
	}
	if err := m.check(s.off, s.size); err != nil {
		return nil, "", err
	}
	spans := make([]ranges.Span, 0, s.size/m.size(16, 24))
	err = m.eachSymbol(s, names, func(s ranges.Span) { spans = append(spans, s) })
	return spans, names, err
}

// eachSymbol calls f with the symbols of code in section s.
func (m *image) eachSymbol(s *section, names string, f func(ranges.Span)) error {
	r, err := m.symbolReader(s)
	if err != nil {
		return err
	}
	return m.eachEntry(s, m.size(16, 24), func(c *cursor.Cursor) {
		entry := r.next(c)
		m.dereference(&entry)
		if sym, ok := entry.code(m, s, names); ok {
			f(sym)
		}
	})
}

// symbolsAt returns the symbols of code in section s that matter for the addresses.
// entries is the contents of the section.
func (m *image) symbolsAt(s *section, entries []byte, names string, addresses []addr.Virt) ([]ranges.Span, error) {
	r, err := m.symbolReader(s)
	if err != nil {
		return nil, err
	}
	n := newNeighbours(addresses)
	r.eachWorth(s, entries, names, n.isOffer, n.offer)
	n.settle()
	var spans []ranges.Span
	r.eachWorth(s, entries, names, n.matters, func(s ranges.Span) {
		if n.matters(s.Start, s.End, s.Unsized) {
			spans = append(spans, s)
		}
	})
	return spans, nil
}

// eachWorth calls f with the symbols of code in entries, except those that worth says no
// to: it gets what the table says, and is asked before anything else is looked at.
func (r *symbolReader) eachWorth(s *section, entries []byte, names string, worth func(start, end uint64, unsized bool) bool, f func(ranges.Span)) {
	moved := r.rel || r.arm || r.descriptors() != nil // their values are not the addresses
	size := int(r.size(16, 24))
	for i := 0; len(entries) >= size; i++ {
		b := entries[:size]
		entries = entries[size:]
		start, length := r.extent(b)
		if !moved && !worth(start, limit(start, length), length == 0) {
			continue
		}
		entry := r.parseSymbol(b)
		r.locate(&entry, i)
		r.dereference(&entry)
		if sym, ok := entry.code(r.image, s, names); ok {
			f(sym)
		}
	}
}

// elfSymbol is an entry of an ELF symbol table.
type elfSymbol struct {
	name        uint32
	info        uint8
	section     uint32 // noSection if it is in none
	value, size uint64
}

// noSection is the number of no section: there are not so many.
const noSection = math.MaxUint32

// symbolReader reads the entries of a symbol table.
type symbolReader struct {
	*image
	number int // of the next entry
	// large has the sections of entries in which they do not fit, as a uint32 for each
	// entry of the table.
	large []byte
}

func (m *image) symbolReader(s *section) (*symbolReader, error) {
	r := &symbolReader{image: m}
	for i := range m.sections {
		t := &m.sections[i]
		if t.typ == shtSYMTABSHNDX && uint64(t.link) < uint64(len(m.sections)) && &m.sections[t.link] == s {
			data, err := m.read(t.off, t.size)
			r.large = data
			return r, err
		}
	}
	return r, nil
}

// next reads the next entry.
func (r *symbolReader) next(c *cursor.Cursor) elfSymbol {
	s := r.parseSymbol(c.Bytes(r.size(16, 24)))
	r.locate(&s, r.number)
	r.number++
	return s
}

// locate sets the section of the entry with this number, if it does not fit the entry.
func (r *symbolReader) locate(s *elfSymbol, number int) {
	switch at := 4 * number; {
	case s.section == shnXINDEX && at+4 <= len(r.large):
		c := r.cursor(r.large[at:], 0)
		s.section = c.U32()
	case s.section >= shnLORESERVE:
		s.section = noSection // an absolute or common symbol
	}
}

// parseSymbol reads an entry. Without one all is 0.
func (m *image) parseSymbol(b []byte) (s elfSymbol) {
	if len(b) == 0 {
		return s
	}
	le := binary.LittleEndian
	s.name, s.section = le.Uint32(b), uint32(le.Uint16(b[14:]))
	if m.is64 {
		s.info, s.section = b[4], uint32(le.Uint16(b[6:]))
	} else {
		s.info = b[12]
	}
	if m.big {
		s.name, s.section = bits.ReverseBytes32(s.name), uint32(bits.ReverseBytes16(uint16(s.section)))
	}
	s.value, s.size = m.extent(b)
	return s
}

// extent reads the value and the size of an entry.
func (m *image) extent(b []byte) (value, size uint64) {
	le := binary.LittleEndian
	if m.is64 {
		value, size = le.Uint64(b[8:]), le.Uint64(b[16:])
	} else {
		value, size = uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:]))
	}
	if m.big {
		unused := 64 - 8*m.size(4, 8)
		value, size = bits.ReverseBytes64(value)>>unused, bits.ReverseBytes64(size)>>unused
	}
	return value, size
}

// limit returns where what starts there ends.
func limit(start, size uint64) uint64 {
	if start+size < start {
		return math.MaxUint64
	}
	return start + size
}

// code returns what span does, for an entry of the table in section t: without a size, one
// of .dynsym names nothing.
func (s elfSymbol) code(m *image, t *section, names string) (ranges.Span, bool) {
	sym, ok := s.span(m, names)
	return sym, ok && !(sym.Unsized && t.typ == shtDYNSYM)
}

// span returns the addresses that s names, or false where it names no code.
func (s elfSymbol) span(m *image, names string) (ranges.Span, bool) {
	if uint64(s.section) >= uint64(len(m.sections)) || !m.sections[s.section].isText() {
		return ranges.Span{}, false
	}
	rank, ok := s.rank(names)
	if !ok {
		return ranges.Span{}, false
	}
	text := &m.sections[s.section]
	if m.rel {
		s.value += text.addr
	}
	if m.arm && rank != ranges.Hidden {
		s.value &^= 1 // marks Thumb code
	}
	if !text.contains(s.value) {
		return ranges.Span{}, false
	}
	room := text.addr + text.size - s.value
	end := s.value + room
	if s.size != 0 {
		end = s.value + min(s.size, room)
	}
	return ranges.Span{Start: s.value, End: end, Value: s.name, Rank: rank, Unsized: s.size == 0}, true
}

// rank orders symbols by type and binding, and reports whether s counts at all.
func (s elfSymbol) rank(names string) (uint8, bool) {
	rank, name := uint8(0), beginningAt(names, s.name)
	switch s.info & 0xf {
	case sttFUNC, sttGNUIFUNC:
	case sttNOTYPE:
		if isAssemblers(name) {
			return 0, false
		}
		rank = 2
	case sttOBJECT:
		return ranges.Hidden, true
	default:
		return 0, false
	}
	if s.info>>4 == stbLOCAL {
		rank++
	}
	return rank, name != ""
}

// isAssemblers reports whether a symbol without type is the assembler's own: a
// mapping symbol ($x, $d.7: Arm and RISC-V) or a local label (.L12: RISC-V).
func isAssemblers(name string) bool {
	return strings.HasPrefix(name, "$") || strings.HasPrefix(name, ".L")
}

// preference returns the order of symbols that cover the same address.
func preference(names string) func(a, b *ranges.Span) int {
	return func(a, b *ranges.Span) int {
		if c := cmp.Or(
			cmp.Compare(a.End-a.Start, b.End-b.Start),
			cmp.Compare(b.Start, a.Start),
			cmp.Compare(a.Rank, b.Rank),
		); c != 0 {
			return c
		}
		return compareNames(beginningAt(names, a.Value), beginningAt(names, b.Value))
	}
}

// compareNames orders names of the same thing, the one for people first.
func compareNames(a, b string) int {
	a, b = unversioned(a), unversioned(b)
	return cmp.Or(
		cmp.Compare(underscores(a), underscores(b)),
		cmp.Compare(len(a), len(b)),
		cmp.Compare(a, b),
	)
}

// underscores returns how many underscores a name starts with. That of mangled
// names says nothing about the name, and counts as none.
func underscores(name string) int {
	if isMangled(name) {
		return 0
	}
	return len(name) - len(strings.TrimLeft(name, "_"))
}
