package addr2line

import (
	"hallmark/addr"
	"hallmark/cmd/hallmark/internal/dwarfentry"
	"hallmark/symbol"
)

// A frame is one of symbol.Frame, with what only llvm's programs print.
type frame struct {
	symbol.Frame
	discriminator uint64    // of the line, 0 for none
	startFile     string    // where the function is declared, "" when not known
	start         addr.Virt // where the function starts
	hasStart      bool
}

// needsDetail reports whether answers have parts that lookups do not know.
func (o *llvmOptions) needsDetail() bool {
	return o.verbose || o.paths == relativePaths || o.style != styleLLVM
}

// ask lets use look at the debug information of a module entry by entry, if it has any.
func (l *llvm) ask(m *module, use func(*dwarfentry.File)) {
	if m == nil {
		return
	}
	if !m.isAsked {
		m.isAsked = true
		m.debug = l.openELF(m)
	}
	if m.debug == nil {
		return
	}
	// Without debug information, or if it is damaged, answers stay as they are.
	_ = m.debug.WithDebug(func(s symbol.DebugSections) error {
		if m.entries == nil {
			m.entries = dwarfentry.New(dwarfentry.Sections{Data: s.Data, Loc: s.Loc, Loclists: s.Loclists})
		}
		use(m.entries)
		return nil
	})
}

// detail adds to the frames at an address what lookups do not know of them. base is
// what was added to the address in its section.
func (l *llvm) detail(m *module, frames []frame, v, base addr.Virt) {
	l.ask(m, func(entries *dwarfentry.File) {
		known := entries.Frames(uint64(v))
		if len(known) != len(frames) {
			return
		}
		for i := range frames {
			f, k := &frames[i], &known[i]
			f.discriminator, f.startFile = k.Discriminator, l.pathOf(k.StartPath)
			f.start, f.hasStart = addr.Virt(k.Start)-base, k.HasStart
			if path := l.pathOf(k.Path); path != "" && l.paths == relativePaths {
				f.File = path
			}
		}
	})
}

// pathOf returns a path in the form that is asked for.
func (l *llvm) pathOf(p dwarfentry.Path) string {
	switch l.paths {
	case relativePaths:
		return p.Relative()
	case baseNames:
		return p.Base()
	}
	return p.Absolute()
}

// data answers with the symbol at an address, and where it is declared. In a file that
// is yet to be linked the sections with data come first.
func (l *llvm) data(r *request, m *module) {
	v, base := l.placeOfData(m, addr.Virt(r.number-l.adjust))
	l.dataIn(r, m, l.tableOf(m), v, base)
}

// dataIn answers with the symbol of a table at an address. base is what is subtracted
// from where the symbol starts.
func (l *llvm) dataIn(r *request, m *module, t *table, v, base addr.Virt) {
	s, ok := t.at(v)
	line := uint64(0)
	if l.style != styleJSON {
		l.ask(m, func(entries *dwarfentry.File) {
			if d, ok := entries.Data(uint64(v)); ok && d.Line != 0 && d.Path.Absolute() != "" {
				s.File, line = d.Path.Absolute(), d.Line
			}
		})
	}
	if ok {
		s.Virt -= base
	}
	l.printer.data(r, s, line)
}

// placeOfData returns where the symbol at an address is looked for, and what was added
// to the address.
func (l *llvm) placeOfData(m *module, v addr.Virt) (at, base addr.Virt) {
	if m == nil {
		return v, 0
	}
	for _, section := range m.within {
		if section.Executable || uint64(v) >= section.Size {
			continue
		}
		if _, ok := l.tableOf(m).at(v + section.Virt); ok {
			return v + section.Virt, section.Virt
		}
	}
	return m.place(v)
}

// frame answers with the variables of the function at an address.
func (l *llvm) frame(r *request, m *module) {
	v, _ := m.place(addr.Virt(r.number - l.adjust))
	l.frameAt(r, m, v)
}

func (l *llvm) frameAt(r *request, m *module, v addr.Virt) {
	var locals []dwarfentry.Local
	l.ask(m, func(entries *dwarfentry.File) { locals = entries.Locals(uint64(v)) })
	l.printer.frame(r, locals)
}

// place returns the address that one in a question stands for, and what was added to
// it: the address of the first section with code that has such an offset, if the file
// is yet to be linked.
func (m *module) place(v addr.Virt) (place, base addr.Virt) {
	if m != nil {
		for _, s := range m.within {
			if s.Executable && uint64(v) < s.Size {
				return v + s.Virt, s.Virt
			}
		}
	}
	return v, 0
}
