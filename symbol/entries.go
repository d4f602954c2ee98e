package symbol

import (
	"errors"

	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
)

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
