// Package symtab names addresses by what linkers leave in a file: .symtab and .dynsym, the
// compressed .gnu_debugdata, and the code and relocations of procedure linkage tables.
package symtab

import (
	"cmp"
	"math"
	"strings"
	"unsafe"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
)

// A Table answers from an ELF symbol table by the rules in the comment of package symbol.
type Table struct {
	Ranges ranges.List // values are offsets in names
	Names  string
}

// NameAt returns the name of the symbol at an address, "" without one.
func (t *Table) NameAt(v addr.Virt) string {
	i, ok := t.Ranges.Find(uint64(v))
	if !ok {
		return ""
	}
	return t.Name(i)
}

// Name returns the name of the range with this index.
func (t *Table) Name(i int) string {
	return Unversioned(elffile.StringAt(t.Names, t.Ranges.Values[i]))
}

// Load reads the symbol table in section s, or of it what answers for some
// addresses, if there are any.
func Load(m *elffile.Image, s *elffile.Section, addresses []addr.Virt) (*Table, error) {
	if len(addresses) > 0 {
		return loadSymbols(m, s, addresses)
	}
	spans, names, err := allSymbols(m, s)
	if err != nil {
		return nil, err
	}
	return newSymtab(spans, names), nil
}

// loadSymbols reads of the symbol table in section s what answers for some addresses. It
// looks at table and names where they are in the file, as most of them are of no interest.
func loadSymbols(m *elffile.Image, s *elffile.Section, addresses []addr.Virt) (*Table, error) {
	var views elffile.Views
	defer views.Close()
	entries, err := viewTable(m, &views, s)
	if err != nil {
		return nil, err
	}
	strtab, err := namesSection(m, s)
	if err != nil {
		return nil, err
	}
	text, err := viewTable(m, &views, strtab)
	if err != nil {
		return nil, err
	}
	var t *Table
	err = m.WhileMapped(func() error {
		names := complete(unsafe.String(unsafe.SliceData(text), len(text)))
		spans, err := symbolsAt(m, s, entries, names, addresses)
		if err == nil {
			t = newSymtab(spans, names)
			if !t.compact() {
				err = m.Fail(strtab.Offset, longNames)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// viewTable returns the bytes of a section of limited size, until views is closed.
func viewTable(m *elffile.Image, views *elffile.Views, s *elffile.Section) ([]byte, error) {
	if err := m.Check(s.Offset, s.Size); err != nil {
		return nil, err
	}
	return m.View(views, s)
}

// newSymtab returns the table of symbols in any order, whose values are offsets in
// names.
func newSymtab(spans []ranges.Span, names string) *Table {
	return &Table{ranges.Flatten(ranges.SettleUnsized(ranges.SortByStart(spans)), preference(names)), names}
}

// NamesOf returns the string table of the symbol table in section s.
func NamesOf(m *elffile.Image, s *elffile.Section) (string, error) {
	strtab, err := namesSection(m, s)
	if err != nil {
		return "", err
	}
	names, err := m.ReadString(strtab.Offset, strtab.Size)
	return complete(names), err
}

// namesSection returns the section with the names of the symbol table in section s.
func namesSection(m *elffile.Image, s *elffile.Section) (*elffile.Section, error) {
	if uint64(s.Link) >= uint64(len(m.Sections)) {
		return nil, m.Fail(s.Offset, "symbol table without a string table")
	}
	return &m.Sections[s.Link], nil
}

// complete returns names up to the end of the last one that has an end.
func complete(names string) string { return names[:strings.LastIndexByte(names, 0)+1] }

// Copies of names may take so many bytes, and some for each byte of the table that has them:
// names can share its bytes, as each of them may begin in the midst of another one.
const (
	minNames    = 32 << 20
	namesFactor = 4
	longNames   = "names of symbols share their bytes far too often"
)

// roomForNames returns how many bytes the copies of names of a table may take.
func roomForNames(table string) int { return minNames + namesFactor*len(table) }

// compact lets go of the names that nothing needs. It returns false where the names that are
// needed take too many bytes. The table is of no use then.
func (t *Table) compact() bool {
	var kept strings.Builder
	room := roomForNames(t.Names)
	for i, off := range t.Ranges.Values {
		t.Ranges.Values[i] = uint32(kept.Len())
		name := elffile.StringAt(t.Names, off)
		if kept.Len()+len(name)+1 > room {
			return false
		}
		kept.WriteString(name)
		kept.WriteByte(0)
	}
	t.Names = kept.String()
	return true
}

// allSymbols returns the symbols of code in section s, if there is one, and its
// string table, in which their values are offsets.
func allSymbols(m *elffile.Image, s *elffile.Section) ([]ranges.Span, string, error) {
	if s == nil {
		return nil, "", nil
	}
	names, err := NamesOf(m, s)
	if err != nil {
		return nil, "", err
	}
	if err := m.Check(s.Offset, s.Size); err != nil {
		return nil, "", err
	}
	spans := make([]ranges.Span, 0, s.Size/m.Size(16, 24))
	err = Each(m, s, names, func(s ranges.Span) { spans = append(spans, s) })
	return spans, names, err
}

// Each calls f with the symbols of code in section s.
func Each(m *elffile.Image, s *elffile.Section, names string, f func(ranges.Span)) error {
	r, err := m.Symbols(s)
	if err != nil {
		return err
	}
	return m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
		entry := r.Next(c)
		m.Dereference(&entry)
		if sym, ok := codeOf(entry, m, s, names); ok {
			f(sym)
		}
	})
}

// symbolsAt returns the symbols of code in section s that matter for the addresses.
// entries is the contents of the section.
func symbolsAt(m *elffile.Image, s *elffile.Section, entries []byte, names string, addresses []addr.Virt) ([]ranges.Span, error) {
	r, err := m.Symbols(s)
	if err != nil {
		return nil, err
	}
	n := newNeighbours(addresses)
	eachWorth(r, s, entries, names, n.isOffer, n.offer)
	n.settle()
	var spans []ranges.Span
	eachWorth(r, s, entries, names, n.matters, func(s ranges.Span) {
		if n.matters(s.Start, s.End, s.Unsized) {
			spans = append(spans, s)
		}
	})
	return spans, nil
}

// eachWorth calls f with the symbols of code in entries, except those that worth says no
// to: it gets what the table says, and is asked before anything else is looked at.
func eachWorth(r *elffile.SymbolReader, s *elffile.Section, entries []byte, names string, worth func(start, end uint64, unsized bool) bool, f func(ranges.Span)) {
	moved := r.MovesSymbols()
	size := int(r.Size(16, 24))
	for i := 0; len(entries) >= size; i++ {
		b := entries[:size]
		entries = entries[size:]
		start, length := r.Extent(b)
		if !moved && !worth(start, limit(start, length), length == 0) {
			continue
		}
		entry := r.ParseSymbol(b)
		r.Locate(&entry, i)
		r.Dereference(&entry)
		if sym, ok := codeOf(entry, r.Image, s, names); ok {
			f(sym)
		}
	}
}

// limit returns where what starts there ends.
func limit(start, size uint64) uint64 {
	if start+size < start {
		return math.MaxUint64
	}
	return start + size
}

// codeOf returns what span does, for an entry of the table in section t: without a size, one
// of .dynsym names nothing.
func codeOf(s elffile.Symbol, m *elffile.Image, t *elffile.Section, names string) (ranges.Span, bool) {
	sym, ok := spanOf(s, m, names)
	return sym, ok && !(sym.Unsized && t.Type == elffile.SHT_DYNSYM)
}

// spanOf returns the addresses that s names, or false where it names no code.
func spanOf(s elffile.Symbol, m *elffile.Image, names string) (ranges.Span, bool) {
	if uint64(s.Section) >= uint64(len(m.Sections)) || !m.Sections[s.Section].IsText() {
		return ranges.Span{}, false
	}
	rank, ok := rankOf(s, names)
	if !ok {
		return ranges.Span{}, false
	}
	text := &m.Sections[s.Section]
	if m.Relocatable {
		s.Value += text.Addr
	}
	if m.Arm && rank != ranges.Hidden {
		s.Value &^= 1 // marks Thumb code
	}
	if !text.Contains(s.Value) {
		return ranges.Span{}, false
	}
	room := text.Addr + text.Size - s.Value
	end := s.Value + room
	if s.Size != 0 {
		end = s.Value + min(s.Size, room)
	}
	return ranges.Span{Start: s.Value, End: end, Value: s.Name, Rank: rank, Unsized: s.Size == 0}, true
}

// rankOf orders symbols by type and binding, and reports whether s counts at all.
func rankOf(s elffile.Symbol, names string) (uint8, bool) {
	rank, name := uint8(0), elffile.BeginningAt(names, s.Name)
	switch s.Info & 0xf {
	case elffile.STT_FUNC, elffile.STT_GNU_IFUNC:
	case elffile.STT_NOTYPE:
		if IsAssemblers(name) {
			return 0, false
		}
		rank = 2
	case elffile.STT_OBJECT:
		return ranges.Hidden, true
	default:
		return 0, false
	}
	if s.Info>>4 == elffile.STB_LOCAL {
		rank++
	}
	return rank, name != ""
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
		return CompareNames(elffile.BeginningAt(names, a.Value), elffile.BeginningAt(names, b.Value))
	}
}
