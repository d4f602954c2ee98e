package symbol

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
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
	ranges ranges // values are offsets in names
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
	i, ok := t.ranges.find(uint64(v))
	if !ok {
		return ""
	}
	return t.name(i)
}

// name returns the name of the range with this index.
func (t *symtab) name(i int) string { return unversioned(stringAt(t.names, t.ranges.values[i])) }

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
	names, err := m.symbolNames(s)
	if err != nil {
		return nil, err
	}
	spans, err := m.readSymbols(s, names, addresses)
	if err != nil {
		return nil, err
	}
	t := newSymtab(spans, names)
	if len(addresses) > 0 {
		t.compact()
	}
	return t, nil
}

// newSymtab returns the table of symbols in any order, whose values are offsets in
// names.
func newSymtab(spans []span, names string) *symtab {
	slices.SortFunc(spans, byStart)
	return &symtab{flatten(settleUnsized(spans), preference(names)), names}
}

// symbolNames returns the string table of the symbol table in section s.
func (m *image) symbolNames(s *section) (string, error) {
	if uint64(s.link) >= uint64(len(m.sections)) {
		return "", m.fail(s.off, "symbol table without a string table")
	}
	strtab := &m.sections[s.link]
	names, err := m.readString(strtab.off, strtab.size)
	return names[:strings.LastIndexByte(names, 0)+1], err // so every name has an end
}

// compact lets go of the names that nothing needs.
func (t *symtab) compact() {
	var kept strings.Builder
	for i, off := range t.ranges.values {
		t.ranges.values[i] = uint32(kept.Len())
		kept.WriteString(stringAt(t.names, off))
		kept.WriteByte(0)
	}
	t.names = kept.String()
}

// readSymbols returns the symbols of code in section s, those that matter for the
// addresses if there are any.
func (m *image) readSymbols(s *section, names string, addresses []addr.Virt) ([]span, error) {
	if len(addresses) == 0 {
		if err := m.check(s.off, s.size); err != nil {
			return nil, err
		}
		spans := make([]span, 0, s.size/m.size(16, 24))
		err := m.eachSymbol(s, names, nil, func(s span) { spans = append(spans, s) })
		return spans, err
	}
	n := newNeighbours(addresses)
	if err := m.eachSymbol(s, names, n.isOffer, n.offer); err != nil {
		return nil, err
	}
	n.settle()
	var spans []span
	err := m.eachSymbol(s, names, n.matters, func(s span) {
		if n.matters(s) {
			spans = append(spans, s)
		}
	})
	return spans, err
}

// eachSymbol calls f with the symbols of code in section s, except those that worth
// says no to: it gets what the table says, and is asked before anything else is looked
// at.
func (m *image) eachSymbol(s *section, names string, worth func(span) bool, f func(span)) error {
	r, err := m.symbolReader(s)
	if err != nil {
		return err
	}
	if m.rel || m.arm {
		worth = nil // their values are not the addresses
	}
	return m.eachEntry(s, m.size(16, 24), func(c *cursor.Cursor) {
		entry := r.next(c)
		if worth != nil && !worth(span{start: entry.value, end: entry.end(), unsized: entry.size == 0}) {
			return
		}
		sym, ok := entry.span(m, names)
		if ok && !(sym.unsized && s.typ == shtDYNSYM) {
			f(sym)
		}
	})
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

// symbolReader reads the entries of a symbol table, one after another.
type symbolReader struct {
	*image
	// large has the sections of entries in which they do not fit, as a uint32 for each
	// entry of the table.
	large cursor.Cursor
}

func (m *image) symbolReader(s *section) (*symbolReader, error) {
	r := &symbolReader{image: m}
	for i := range m.sections {
		t := &m.sections[i]
		if t.typ == shtSYMTABSHNDX && uint64(t.link) < uint64(len(m.sections)) && &m.sections[t.link] == s {
			data, err := m.read(t.off, t.size)
			r.large = m.cursor(data, t.off)
			return r, err
		}
	}
	return r, nil
}

// next reads the next entry.
func (r *symbolReader) next(c *cursor.Cursor) elfSymbol {
	s := r.parseSymbol(c)
	large := r.large.U32()
	switch {
	case s.section == shnXINDEX && r.large.Err() == nil:
		s.section = large
	case s.section >= shnLORESERVE:
		s.section = noSection // an absolute or common symbol
	}
	return s
}

func (m *image) parseSymbol(c *cursor.Cursor) (s elfSymbol) {
	b := c.Bytes(m.size(16, 24))
	le := binary.LittleEndian
	switch {
	case b == nil:
		return s
	case m.is64:
		s = elfSymbol{le.Uint32(b), b[4], uint32(le.Uint16(b[6:])), le.Uint64(b[8:]), le.Uint64(b[16:])}
	default:
		s = elfSymbol{le.Uint32(b), b[12], uint32(le.Uint16(b[14:])), uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:]))}
	}
	if m.big {
		s.name, s.section = bits.ReverseBytes32(s.name), uint32(bits.ReverseBytes16(uint16(s.section)))
		unused := 64 - 8*m.size(4, 8)
		s.value, s.size = bits.ReverseBytes64(s.value)>>unused, bits.ReverseBytes64(s.size)>>unused
	}
	return s
}

// end returns where what the symbol names ends.
func (s *elfSymbol) end() uint64 {
	if s.value+s.size < s.value {
		return math.MaxUint64
	}
	return s.value + s.size
}

// span returns the addresses that s names, or false where it names no code.
func (s elfSymbol) span(m *image, names string) (span, bool) {
	if uint64(s.section) >= uint64(len(m.sections)) || !m.sections[s.section].isText() {
		return span{}, false
	}
	rank, ok := s.rank(names)
	if !ok {
		return span{}, false
	}
	text := &m.sections[s.section]
	if m.rel {
		s.value += text.addr
	}
	if m.arm && rank != hidden {
		s.value &^= 1 // marks Thumb code
	}
	if !text.contains(s.value) {
		return span{}, false
	}
	room := text.addr + text.size - s.value
	end := s.value + room
	if s.size != 0 {
		end = s.value + min(s.size, room)
	}
	return span{s.value, end, s.name, rank, s.size == 0}, true
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
		return hidden, true
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

// byStart sorts spans by where they start, those with a size first.
func byStart(a, b span) int {
	if c := cmp.Compare(a.start, b.start); c != 0 || a.unsized == b.unsized {
		return c
	}
	if a.unsized {
		return 1
	}
	return -1
}

// settleUnsized ends the spans without a size where the next one starts, and
// drops those that lie within one with a size.
func settleUnsized(spans []span) []span {
	next := uint64(math.MaxUint64)
	for i := len(spans) - 1; i >= 0; i-- {
		if i+1 < len(spans) && spans[i+1].start > spans[i].start {
			next = spans[i+1].start
		}
		if spans[i].unsized {
			spans[i].end = min(spans[i].end, next)
		}
	}
	covered := uint64(0)
	return slices.DeleteFunc(spans, func(s span) bool {
		if !s.unsized {
			covered = max(covered, s.end)
		}
		return s.unsized && s.start < covered
	})
}

// preference returns the order of symbols that cover the same address.
func preference(names string) func(a, b *span) int {
	return func(a, b *span) int {
		if c := cmp.Or(
			cmp.Compare(a.end-a.start, b.end-b.start),
			cmp.Compare(b.start, a.start),
			cmp.Compare(a.rank, b.rank),
		); c != 0 {
			return c
		}
		return compareNames(beginningAt(names, a.value), beginningAt(names, b.value))
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
