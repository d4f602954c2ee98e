package addr2line

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/symbol"
)

// A table is what the symbol table of a file says of code and data.
type table struct {
	symbols []symbol.ELFSymbol // by address
	within  []symbol.Section   // of the file
	isLoose bool               // the file is yet to be linked
	byName  map[string][]addr.Virt
}

// readTable reads the symbol table of a file and closes the file. Without a file, or
// if it is damaged, the table is empty.
func readTable(file *symbol.File) *table {
	t := new(table)
	if file != nil {
		t.symbols, _ = file.ELFSymbols()
		t.within, t.isLoose = file.Sections(), file.Relocatable()
		file.Close()
	}
	return t
}

// at returns the symbol that holds an address, or starts there if its size is not
// known. Of several that start at the same address it is the largest one, and of those
// the last in the symbol table.
func (t *table) at(v addr.Virt) (symbol.ELFSymbol, bool) {
	i := t.above(v)
	if i == 0 {
		return symbol.ELFSymbol{}, false
	}
	s := t.symbols[i-1]
	if uint64(v-s.Virt) >= max(s.Size, 1) {
		return symbol.ELFSymbol{}, false
	}
	return s, true
}

// label returns the symbol of data that holds an address: one whose size is not known reaches to the next symbol of
// its section. Code is for lookups to name, and an address in no section has at most a symbol that starts there.
func (t *table) label(v addr.Virt) (symbol.ELFSymbol, bool) {
	i := t.above(v)
	if i == 0 {
		return symbol.ELFSymbol{}, false
	}
	s := t.symbols[i-1]
	in := slices.IndexFunc(t.within, func(in symbol.Section) bool { return v >= in.Virt && uint64(v-in.Virt) < in.Size })
	switch {
	case in >= 0 && (t.within[in].Executable || s.Virt < t.within[in].Virt), in < 0 && !t.isLoose && s.Virt != v:
		return symbol.ELFSymbol{}, false
	}
	return s, s.Size == 0 || uint64(v-s.Virt) < s.Size
}

// holding returns the symbol that holds an address. One whose size is not known may
// start before it if it has this name.
func (t *table) holding(v addr.Virt, name string) (symbol.ELFSymbol, bool) {
	if s, ok := t.at(v); ok {
		return s, true
	}
	if i := t.above(v); i > 0 && t.symbols[i-1].Size == 0 && t.symbols[i-1].Name == name {
		return t.symbols[i-1], true
	}
	return symbol.ELFSymbol{}, false
}

// untag takes away what HWASan puts into the upper byte of addresses. Addresses of a
// kernel have all its bits set.
func (t *table) untag() {
	for i := range t.symbols {
		s := &t.symbols[i]
		s.Virt = addr.Virt(int64(s.Virt) << 8 >> 8)
	}
	slices.SortStableFunc(t.symbols, func(a, b symbol.ELFSymbol) int {
		return cmp.Or(cmp.Compare(a.Virt, b.Virt), cmp.Compare(a.Size, b.Size))
	})
}

// fileOf returns the source file of the local symbol with this name that an address
// belongs to, "" if it is not known. The symbol may have no size.
func (t *table) fileOf(name string, v addr.Virt) string {
	const near = 16 // symbols that can start at one address
	end := t.above(v)
	for i := end - 1; i >= max(0, end-near); i-- {
		if t.symbols[i].Name == name {
			return t.symbols[i].File
		}
	}
	return ""
}

// above returns the index of the first symbol that starts above an address.
func (t *table) above(v addr.Virt) int {
	return sort.Search(len(t.symbols), func(i int) bool { return t.symbols[i].Virt > v })
}

// named returns the addresses of the symbols with this name.
func (t *table) named(name string) []addr.Virt {
	if t.byName == nil {
		t.byName = make(map[string][]addr.Virt, len(t.symbols))
		for _, s := range t.symbols {
			if known := t.byName[s.Name]; !slices.Contains(known, s.Virt) {
				t.byName[s.Name] = append(known, s.Virt)
			}
		}
	}
	return t.byName[name]
}

// openELF opens a file and its debug file for what its tables say, or returns nil.
func openELF(l *debuginfo.Library, path string) *symbol.File {
	file, err := symbol.OpenFile(path)
	if err != nil {
		return nil
	}
	id, err := debuginfo.Identify(file)
	if err != nil && !errors.Is(err, buildid.ErrFormat) {
		return file
	}
	return l.Finder.Complete(id, file)
}
