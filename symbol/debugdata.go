package symbol

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
)

// debugData are the debug sections of a file, mapped or read into memory.
type debugData struct {
	*dwarf.Data
	elffile.Views
	done atomic.Int64 // bytes of units that were read
}

// hasDWARF reports whether the file has a .debug_info, compressed or not.
func hasDWARF(m *elffile.Image) bool {
	return m.DebugSection("info") != nil
}

// openDebug returns the debug sections of the file whose names have a suffix, and
// decompresses so many of them at once. The caller closes them, and uses nothing of
// them afterwards.
func openDebug(m *elffile.Image, suffix string, threads int) (*debugData, error) {
	d, sections, err := debugSections(m, suffix)
	if err == nil {
		err = m.Load(&d.Views, sections, threads)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// openDebugByNeed does what openDebug does, but that a compressed .debug_info is left
// to what it returns second, which is nil where there is none.
func openDebugByNeed(m *elffile.Image) (*debugData, *elffile.Inflating, error) {
	d, sections, err := debugSections(m, "")
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	var info *elffile.Inflating
	sections = slices.DeleteFunc(sections, func(b *elffile.Content) bool {
		if b.To != &d.Info || m.Relocatable {
			return false
		}
		if b.Open == nil {
			d.Peek = func(p []byte, offset uint64) bool { return m.ReadAt(p, b.Offset+offset) == nil }
			return false
		}
		d.Info = b.Out
		info = elffile.NewInflating(m, b)
		info.Need(0) // while others are decompressed
		return true
	})
	if err := m.Load(&d.Views, sections, 0); err != nil {
		if info != nil {
			info.Stop()
		}
		d.Close()
		return nil, nil, err
	}
	return d, info, nil
}

// debugSections returns the debug sections of the file whose names have a suffix. They
// are not loaded.
func debugSections(m *elffile.Image, suffix string) (*debugData, []*elffile.Content, error) {
	d := &debugData{
		Data: &dwarf.Data{Big: m.Big, AddrSize: int(m.Size(4, 8)), Text: textOf(m)},
	}
	var sections []*elffile.Content
	for _, s := range []struct {
		name string
		data *[]byte
	}{
		{"info", &d.Info},
		{"abbrev", &d.Abbrev},
		{"line", &d.Line},
		{"str", &d.Str},
		{"line_str", &d.LineStr},
		{"str_offsets", &d.StrOffsets},
		{"addr", &d.Addr},
		{"ranges", &d.Ranges},
		{"rnglists", &d.Rnglists},
	} {
		section, err := debugSectionOf(m, d, s.name+suffix)
		if err != nil {
			return d, nil, err
		}
		if section != nil {
			if slices.ContainsFunc(sections, section.Shares) {
				return d, nil, m.Fail(section.Offset, "compressed section shares bytes with another")
			}
			section.To = s.data
			sections = append(sections, section)
		}
	}
	return d, sections, admitDebug(m, d, sections)
}

// textOf returns the addresses of the sections of code, in order and disjoint.
func textOf(m *elffile.Image) []dwarf.Range {
	var spans []ranges.Span
	for i := range m.Sections {
		if s := &m.Sections[i]; s.IsText() && s.Size != 0 {
			spans = append(spans, ranges.Span{Start: s.Addr, End: s.Addr + min(s.Size, math.MaxUint64-s.Addr)})
		}
	}
	var text []dwarf.Range
	for _, s := range ranges.Union(spans) {
		text = append(text, dwarf.Range{Low: s.Start, High: s.End})
	}
	return text
}

// debugSectionOf returns .debug_NAME, nil where there is none.
func debugSectionOf(m *elffile.Image, d *debugData, name string) (*elffile.Content, error) {
	s := m.DebugSection(name)
	if s == nil {
		return nil, nil
	}
	return m.Content(&d.Views, s)
}

// admitDebug makes room for sections.
func admitDebug(m *elffile.Image, d *debugData, sections []*elffile.Content) error {
	if err := m.Admit(&d.Views, sections); err != nil {
		return err
	}
	for _, b := range sections {
		d.Stored += int64(len(b.Raw))
	}
	return nil
}

// ErrNoDWARF says that a file has no debug information.
var ErrNoDWARF = errors.New("no debug information")

// DebugSections are the debug sections of a file, decompressed and relocated, valid
// until the File is closed.
type DebugSections struct {
	*dwarf.Data
	Loc      []byte // .debug_loc
	Loclists []byte // .debug_loclists
}

// WithDebug calls use with the debug sections of the file or of its debug file, which
// may be looked at only during a call: they are mapped, and gone if the file is cut off,
// which is an error. It is for what lookups do not answer, and for a File that is asked
// for nothing else.
func (f *File) WithDebug(use func(DebugSections) error) error {
	if !f.hasDebug() {
		return ErrNoDWARF
	}
	d, err := f.debug()
	if err != nil {
		return err
	}
	if err := d.need(uint64(len(d.data.Info))); err != nil {
		return err
	}
	if err := d.loadLists(); err != nil {
		return err
	}
	return d.image.WhileMapped(func() error { return use(d.lists) })
}

// loadLists loads the sections with lists of locations, which lookups do without.
func (d *debugInfo) loadLists() error {
	if d.lists.Data != nil {
		return nil
	}
	lists := DebugSections{Data: d.data.Data}
	var sections []*elffile.Content
	for _, s := range []struct {
		name string
		data *[]byte
	}{{"loc", &lists.Loc}, {"loclists", &lists.Loclists}} {
		section, err := debugSectionOf(d.image, d.data, s.name)
		if err != nil {
			return err
		}
		if section != nil {
			section.To = s.data
			sections = append(sections, section)
		}
	}
	if err := admitDebug(d.image, d.data, sections); err != nil {
		return err
	}
	if err := d.image.Load(&d.data.Views, sections, 1); err != nil {
		return err
	}
	d.lists = lists
	return nil
}
