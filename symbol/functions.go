package symbol

import (
	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
)

// Function is a function in the ELF symbol table of a file.
type Function struct {
	Name string // with the suffix of a part or a clone, without a symbol version
	Virt addr.Virt
	Size uint64 // 0 if the table does not tell
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
