package dwarftest

import (
	"debug/elf"

	"hallmark/internal/elftest"
)

// Numbers of sections in the index of a package (DWARF 5, section 7.3.5.3, and its
// predecessor at https://gcc.gnu.org/wiki/DebugFissionDWP).
const (
	sectInfo       = 1
	sectAbbrev     = 3
	sectStrOffsets = 6
	sectRnglists   = 8
)

// packageSections returns the sections of a .dwp file: those of all split units, one
// after another, and an index of them.
func (l *layout) packageSections(g *generator) []elftest.Section {
	var all object
	columns := []int{sectInfo, sectAbbrev, sectStrOffsets}
	if l.packed >= 5 {
		columns = append(columns, sectRnglists)
	}
	shuffle(g, columns)
	var offsets, sizes buffer
	offsets.big, sizes.big = g.big, g.big
	for _, u := range l.split {
		o := u.object
		for _, c := range columns {
			from := map[int]*buffer{sectInfo: &o.info, sectAbbrev: &o.abbrev, sectStrOffsets: &o.strOffsets, sectRnglists: &o.rnglists}[c]
			to := map[int]*buffer{sectInfo: &all.info, sectAbbrev: &all.abbrev, sectStrOffsets: &all.strOffsets, sectRnglists: &all.rnglists}[c]
			offsets.num(uint64(to.len()), 4)
			sizes.num(uint64(from.len()), 4)
			to.bytes(from.b)
		}
	}
	all.g, all.dwo = g, true
	all.str, all.lineStr = l.split[0].str, &stringSection{}
	return append(all.sections(".dwo"), elftest.Section{
		Name: ".debug_cu_index", Type: elf.SHT_PROGBITS, Data: l.index(g, columns, offsets.b, sizes.b),
	})
}

// index returns .debug_cu_index.
func (l *layout) index(g *generator, columns []int, offsets, sizes []byte) []byte {
	b := buffer{big: g.big}
	if l.packed >= 5 {
		b.num(5, 2)
		b.num(0, 2)
	} else {
		b.num(2, 4)
	}
	slots := uint64(2)
	for slots < uint64(len(l.split))*3/2+1 || g.oneIn(3) {
		slots *= 2
	}
	b.num(uint64(len(columns)), 4)
	b.num(uint64(len(l.split)), 4)
	b.num(slots, 4)
	ids, rows := make([]uint64, slots), make([]uint64, slots)
	for i, u := range l.split {
		slot, step := u.id&(slots-1), u.id>>32&(slots-1)|1
		for rows[slot] != 0 {
			slot = (slot + step) & (slots - 1)
		}
		ids[slot], rows[slot] = u.id, uint64(i+1)
	}
	for _, id := range ids {
		b.num(id, 8)
	}
	for _, r := range rows {
		b.num(r, 4)
	}
	for _, c := range columns {
		b.num(uint64(c), 4)
	}
	b.bytes(offsets)
	b.bytes(sizes)
	return b.b
}
