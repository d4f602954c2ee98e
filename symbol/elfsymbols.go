package symbol

import (
	"cmp"
	"slices"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
)

// A Section is a named part of a file that is in memory when its code runs.
type Section struct {
	Name       string
	Virt       addr.Virt // sh_addr; in a relocatable file where Segments lays it out
	Size       uint64
	Executable bool
}

// Sections returns the allocated sections in the order of the file, none where it has no section headers.
func (f *File) Sections() []Section {
	var sections []Section
	if f.image.Headerless {
		return nil
	}
	for i := range f.image.Sections {
		if s := &f.image.Sections[i]; s.Flags&elffile.SHF_ALLOC != 0 {
			sections = append(sections, Section{s.Name, addr.Virt(s.Addr), s.Size, s.IsText()})
		}
	}
	return sections
}

// Relocatable reports whether the file is yet to be linked, as object files and kernel
// modules are: its sections have no addresses of their own.
func (f *File) Relocatable() bool { return f.image.Relocatable }

// AddressSize returns how many bytes an address of the file has: 4 or 8.
func (f *File) AddressSize() int { return int(f.image.Size(4, 8)) }

// An ELFSymbol is an entry of an ELF symbol table: a name of code or of data. Nothing
// was judged: what names code best is for LookupVirt to say.
type ELFSymbol struct {
	Name string // what the linker saw, without a symbol version
	File string // source file of a local symbol, without directories; "" when not known
	Virt addr.Virt
	Size uint64 // 0 when not known
}

// ELFSymbols returns the symbols of .symtab, of the file or of its debug file, or else
// those of .dynsym, sorted by address and size, and else in the order of the table. It
// reads them anew each time.
func (f *File) ELFSymbols() ([]ELFSymbol, error) {
	f.renew()
	for _, typ := range []uint32{elffile.SHT_SYMTAB, elffile.SHT_DYNSYM} {
		for _, m := range f.images {
			if s := m.SectionOfType(typ); s != nil {
				return elfSymbolsIn(m, s)
			}
		}
	}
	return nil, nil
}

func elfSymbolsIn(m *elffile.Image, s *elffile.Section) ([]ELFSymbol, error) {
	names, err := symtab.NamesOf(m, s)
	if err != nil {
		return nil, err
	}
	r, err := m.Symbols(s)
	if err != nil {
		return nil, err
	}
	var symbols []ELFSymbol
	file := ""
	err = m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
		e := r.Next(c)
		m.Dereference(&e)
		name := elffile.BeginningAt(names, e.Name)
		switch {
		case e.Type() == elffile.STT_FILE:
			file = name
		case isNamedSymbol(e, m, name):
			symbols = append(twice(symbols), namedSymbol(e, m, name, file))
		}
	})
	return sortedSymbols(symbols), err
}

// sortedSymbols returns symbols sorted by address and size, and else in their order. It moves each
// once: a stable sort in place moves them more often than it compares them.
func sortedSymbols(symbols []ELFSymbol) []ELFSymbol {
	type key struct {
		virt addr.Virt
		size uint64
		at   int
	}
	keys := make([]key, len(symbols))
	for i := range symbols {
		keys[i] = key{symbols[i].Virt, symbols[i].Size, i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.virt, b.virt), cmp.Compare(a.size, b.size), cmp.Compare(a.at, b.at))
	})
	sorted := make([]ELFSymbol, len(symbols))
	for i := range keys {
		sorted[i] = symbols[keys[i].at]
	}
	return sorted
}

// isNamedSymbol reports whether s is code or data of the file that a name stands for.
func isNamedSymbol(s elffile.Symbol, m *elffile.Image, name string) bool {
	if s.Section == 0 || uint64(s.Section) >= uint64(len(m.Sections)) || m.Sections[s.Section].Flags&elffile.SHF_ALLOC == 0 {
		return false
	}
	switch s.Info & 0xf {
	case elffile.STT_NOTYPE:
		return name != "" && !symtab.IsAssemblers(name)
	case elffile.STT_OBJECT, elffile.STT_FUNC, elffile.STT_GNU_IFUNC:
		return name != ""
	}
	return false
}

func namedSymbol(s elffile.Symbol, m *elffile.Image, name, file string) ELFSymbol {
	if m.Relocatable {
		s.Value += m.Sections[s.Section].Addr
	}
	if s.Info>>4 != elffile.STB_LOCAL {
		file = ""
	}
	return ELFSymbol{Name: symtab.Unversioned(name), File: file, Virt: addr.Virt(s.Value), Size: s.Size}
}

// Function is a function in the ELF symbol table of a file.
type Function struct {
	Name string // with the suffix of a part or a clone, without a symbol version
	Virt addr.Virt
	Size uint64 // 0 if the table does not have it
}

// Functions returns what the ELF symbol tables of a file, and of the debug file joined
// to it, have in code, in no order: for those who have the name of a function and want
// its address. Several can have the same name, and the same address. The dynamic symbol
// table stands in where there is no other.
func (f *File) Functions() ([]Function, error) {
	f.renew()
	for _, kind := range []uint32{elffile.SHT_SYMTAB, elffile.SHT_DYNSYM} {
		for _, m := range f.images {
			s := m.SectionOfType(kind)
			if s == nil {
				continue
			}
			if functions, err := functionsIn(m, s); len(functions) > 0 || err != nil {
				return functions, err
			}
		}
	}
	return nil, nil
}

func functionsIn(m *elffile.Image, s *elffile.Section) ([]Function, error) {
	names, err := symtab.NamesOf(m, s)
	if err != nil {
		return nil, err
	}
	if err := m.Check(s.Offset, s.Size); err != nil {
		return nil, err
	}
	var functions []Function
	err = symtab.Each(m, s, names, func(sym ranges.Span) {
		if sym.Rank == ranges.Hidden {
			return
		}
		fn := Function{Name: symtab.Unversioned(elffile.StringAt(names, sym.Value)), Virt: addr.Virt(sym.Start)}
		if !sym.Unsized {
			fn.Size = sym.End - sym.Start
		}
		functions = append(functions, fn)
	})
	return functions, err
}
