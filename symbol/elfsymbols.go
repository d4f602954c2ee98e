package symbol

import (
	"cmp"
	"slices"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

const sttFILE = 4

// A Section is a named part of a file that is in memory when its code runs.
type Section struct {
	Name       string
	Virt       addr.Virt // sh_addr; in a relocatable file where Segments lays it out
	Size       uint64
	Executable bool
}

// Sections returns the allocated sections in the order of the file.
func (f *File) Sections() []Section {
	var sections []Section
	for i := range f.image.sections {
		if s := &f.image.sections[i]; s.flags&shfALLOC != 0 {
			sections = append(sections, Section{s.name, addr.Virt(s.addr), s.size, s.isText()})
		}
	}
	return sections
}

// Relocatable reports whether the file is yet to be linked, as object files and kernel
// modules are: its sections have no addresses of their own.
func (f *File) Relocatable() bool { return f.image.rel }

// AddressSize returns how many bytes an address of the file has: 4 or 8.
func (f *File) AddressSize() int { return int(f.image.size(4, 8)) }

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
	for _, typ := range []uint32{shtSYMTAB, shtDYNSYM} {
		for _, m := range f.images {
			if s := m.sectionOfType(typ); s != nil {
				return m.elfSymbols(s)
			}
		}
	}
	return nil, nil
}

func (m *image) elfSymbols(s *section) ([]ELFSymbol, error) {
	names, err := m.symbolNames(s)
	if err != nil {
		return nil, err
	}
	r, err := m.symbolReader(s)
	if err != nil {
		return nil, err
	}
	var symbols []ELFSymbol
	file := ""
	err = m.eachEntry(s, m.size(16, 24), func(c *cursor.Cursor) {
		e := r.next(c)
		m.dereference(&e)
		name := beginningAt(names, e.name)
		switch {
		case e.info&0xf == sttFILE:
			file = name
		case e.isNamed(m, name):
			symbols = append(symbols, e.named(m, name, file))
		}
	})
	slices.SortStableFunc(symbols, func(a, b ELFSymbol) int {
		return cmp.Or(cmp.Compare(a.Virt, b.Virt), cmp.Compare(a.Size, b.Size))
	})
	return symbols, err
}

// isNamed reports whether s is code or data of the file that a name stands for.
func (s elfSymbol) isNamed(m *image, name string) bool {
	if s.section == 0 || uint64(s.section) >= uint64(len(m.sections)) || m.sections[s.section].flags&shfALLOC == 0 {
		return false
	}
	switch s.info & 0xf {
	case sttNOTYPE:
		return name != "" && !isAssemblers(name)
	case sttOBJECT, sttFUNC, sttGNUIFUNC:
		return name != ""
	}
	return false
}

func (s elfSymbol) named(m *image, name, file string) ELFSymbol {
	if m.rel {
		s.value += m.sections[s.section].addr
	}
	if s.info>>4 != stbLOCAL {
		file = ""
	}
	return ELFSymbol{Name: unversioned(name), File: file, Virt: addr.Virt(s.value), Size: s.size}
}
