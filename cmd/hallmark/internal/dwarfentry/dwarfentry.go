// Package dwarfentry reads entries of DWARF one by one, for questions that are rarely
// asked: where data is declared, which variables a function has and where they are in
// its frame, in which file a function starts, and the discriminators of a line.
//
// Package dwarf answers what is asked all the time, and skips the entries that this
// package is about. Here every entry that is passed is decoded: an answer takes some
// milliseconds for a large unit, and nothing is kept but functions and rows of the
// units that were asked for last.
//
// Versions 2 to 5 are understood, with 32-bit and 64-bit offsets, in both byte orders,
// also units split off into .dwo files and what dwz moved into a supplementary file.
// The input is not trusted: each question has a limit on the attributes that it reads.
package dwarfentry

import (
	"slices"

	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
)

// Sections are the debug sections of a file.
type Sections struct {
	*dwarf.Data
	Loc      []byte // .debug_loc
	Loclists []byte // .debug_loclists
}

// A File answers questions about the DWARF of one file. It is for one goroutine.
type File struct {
	main   *data
	recent []*unit // whose functions are known, last used first

	split map[*byte]*data // files with units that were split off, by their entries

	variables [][]variable // of each unit of main, by address
	searched  bool         // variables are known

	size   int // bytes of entries
	ranges int // that units may still have, all together
	budget int // attributes that may be read for this question
}

// Limits. An attribute can take no bytes of an entry, so that a small file can have
// any number of them; real ones have some 6 an entry of 12 bytes.
const (
	maxRecent     = 8
	maxUnits      = 1 << 20
	maxRows       = 1 << 20 // of a line program
	maxDepth      = 200     // of nested entries, and of references from type to type
	maxAttributes = 256     // of an entry
	freeBudget    = 1 << 20
	budgetOfByte  = 4
	bytesOfBudget = 16 // of a string
	maxLocals     = 10_000
)

// New returns the File of debug sections.
func New(s Sections) *File {
	f := &File{size: len(s.Info), ranges: len(s.Info) + len(s.Ranges) + len(s.Rnglists), split: map[*byte]*data{}}
	f.main = newData(f, s)
	return f
}

// renew lets the next question spend as much as each may.
func (f *File) renew() { f.budget = freeBudget + budgetOfByte*f.size }

// data are the sections of a file, and its units.
type data struct {
	Sections
	file    *File
	sup     *data // supplementary file, or nil
	units   []*unit
	scanned bool
	abbrevs map[uint64]map[uint64]*abbrev // by offset and code
	left    int                           // attributes of abbreviations that may still be read
}

func newData(f *File, s Sections) *data {
	d := &data{Sections: s, file: f, abbrevs: map[uint64]map[uint64]*abbrev{}, left: len(s.Abbrev)}
	if s.Sup != nil {
		d.sup = newData(f, Sections{Data: s.Sup})
	}
	return d
}

// A unit is a compilation, or a part of one.
type unit struct {
	*data
	start, first, end uint64 // of its header, its first entry, and its end
	version           uint16
	kind              uint8
	addrSize, offSize int
	abbrevs           map[uint64]*abbrev // nil until they are needed
	abbrevsAt         uint64

	// These are read from its first entry, when isReady is set.
	isReady       bool
	root          entry
	id            uint64
	addrBase      uint64
	strBase       uint64
	rnglistsBase  uint64
	low           uint64
	dir           string
	dwoName       string // of what was split off, until it is looked for
	own           *unit  // the unit that was split off, or the unit itself
	skeleton      *unit  // that stayed where this one was split off, or the unit itself
	table         *lineTable
	ranges        []dwarf.Range
	scopes        []scope
	isScopesKnown bool
}

// all returns the units of d. Those behind damage are left out.
func (d *data) all() []*unit {
	if d.scanned {
		return d.units
	}
	d.scanned = true
	for at := uint64(0); at < uint64(len(d.Info)) && len(d.units) < maxUnits; {
		u, ok := d.header(at)
		if u == nil {
			break
		}
		if ok {
			d.units = append(d.units, u)
		}
		at = u.end
	}
	return d.units
}

// header reads the header of the unit at an offset. It returns nil where the unit has
// no end, and false if its form is not known.
func (d *data) header(at uint64) (*unit, bool) {
	c := cursor.New(d.Info, 0, d.Big)
	c.SeekTo(at)
	u := &unit{data: d, start: at, offSize: 4, kind: dwarf.UnitCompile}
	length := uint64(c.U32())
	if length == 0xffffffff {
		u.offSize, length = 8, c.U64()
	}
	if c.Err() != nil || length > uint64(c.Len()) || length == 0 {
		return nil, false
	}
	u.end = uint64(c.Pos()) + length
	u.version = c.U16()
	var abbrevs uint64
	if u.version >= 5 {
		u.kind, u.addrSize = c.U8(), int(c.U8())
		abbrevs = c.Word(u.offSize)
	} else {
		abbrevs = c.Word(u.offSize)
		u.addrSize = int(c.U8())
	}
	switch u.kind {
	case dwarf.UnitSkeleton, dwarf.UnitSplitCompile:
		u.id = c.U64()
	case dwarf.UnitType, dwarf.UnitSplitType:
		c.Skip(uint64(8 + u.offSize))
	}
	u.first = uint64(c.Pos())
	if c.Err() != nil || u.version < 2 || u.version > 5 || u.addrSize != 4 && u.addrSize != 8 || u.first > u.end {
		return u, false
	}
	u.abbrevsAt = abbrevs
	return u, true
}

// unitAt returns the unit that an offset is in.
func (d *data) unitAt(off uint64) *unit {
	units := d.all()
	i, ok := slices.BinarySearchFunc(units, off, func(u *unit, off uint64) int {
		switch {
		case off < u.start:
			return 1
		case off >= u.end:
			return -1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return units[i]
}

// ready reads the first entry of the unit.
func (u *unit) ready() *unit {
	if u.isReady {
		return u
	}
	u.isReady, u.own = true, u
	if u.skeleton == nil {
		u.skeleton = u
	}
	root, ok := u.entryAt(u.first)
	if !ok {
		return u
	}
	u.root = root
	u.setBases()
	u.low, _ = u.address(root.find(atLowPC))
	u.dir = u.string(root.find(atCompDir))
	u.dwoName = u.string(root.find(atDwoName, atGNUDwoName))
	if id := root.find(atGNUDwoID); id.form != 0 {
		u.id = id.u
	}
	return u
}

// full returns the unit that was split off from u, once it is needed, or u itself.
func (u *unit) full() *unit {
	u.ready()
	if name := u.dwoName; name != "" && u.Split != nil && u.skeleton == u {
		u.dwoName = ""
		u.openSplit(name)
	}
	return u.own
}

// setBases learns where in other sections the unit's parts of them start.
func (u *unit) setBases() {
	header := uint64(8)
	if u.offSize == 8 {
		header = 16
	}
	if s := u.skeleton; s != u { // split off: its sections are of this unit alone
		u.addrBase = s.addrBase
		if u.version >= 5 {
			u.strBase, u.rnglistsBase = header, header+4
		}
		return
	}
	base := func(at ...uint16) uint64 { return u.root.find(at...).u }
	u.addrBase = base(atAddrBase, atGNUAddrBase)
	u.strBase = base(atStrOffsetsBase)
	u.rnglistsBase = base(atRnglistsBase, atGNURangesBase)
}

// openSplit finds the unit that was split off.
func (u *unit) openSplit(name string) {
	found := u.Split(u.id, u.dir, name)
	if found == nil {
		return
	}
	for _, own := range u.file.splitData(found).all() {
		if own.kind == dwarf.UnitType || own.kind == dwarf.UnitSplitType || own.skeleton != nil || own.splitID() != u.id {
			continue
		}
		own.skeleton = u
		own.ready()
		own.dir, own.low = u.dir, u.low
		u.own = own
		return
	}
}

// splitID returns the number that a unit which was split off has in common with what
// stayed.
func (u *unit) splitID() uint64 {
	if u.version >= 5 {
		return u.id
	}
	root, _ := u.entryAt(u.first)
	return root.find(atGNUDwoID).u
}

// splitData returns the units of a file with units that were split off.
func (f *File) splitData(found *dwarf.Data) *data {
	if len(found.Info) == 0 {
		return newData(f, Sections{Data: found})
	}
	d := f.split[&found.Info[0]]
	if d == nil {
		f.size += len(found.Info)
		f.budget += budgetOfByte * len(found.Info)
		d = newData(f, Sections{Data: found})
		f.split[&found.Info[0]] = d
	}
	return d
}

// contains reports whether a range is of code of the file: what the linker threw away
// is not.
func (d *data) contains(r dwarf.Range) bool {
	text := d.file.main.Text
	return r.Low < r.High && (len(text) == 0 || slices.ContainsFunc(text, func(t dwarf.Range) bool {
		return t.Low <= r.Low && r.Low < t.High
	}))
}
