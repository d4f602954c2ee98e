// Package dwarf reads from DWARF what a symbolizer wants, and nothing else: which
// function and which inlined calls an address belongs to, with file and line of
// each.
//
// It is a package of its own, beside debug/dwarf, because it is made for reading
// everything once, as fast as memory gives it, and for input that cannot be
// trusted. Abbreviations are compiled into plans, so that an entry of no interest
// (nine of ten: types, variables, parameters) costs a few additions. Nothing is
// built that lasts: a Reader works on one unit at a time, in buffers that it uses
// again for the next, and several Readers can work on the units of one Data at
// once.
//
// Versions 2 to 5 are understood, with 32-bit and 64-bit offsets, in both byte
// orders, with addresses of 4 and 8 bytes; also entries that refer to other units
// or to the supplementary file that dwz makes, and units split off into .dwo files.
//
// # Which entry an address belongs to
//
// An entry of a function or of an inlined call has its addresses, whatever those of
// the entries around it are. Where several of one unit claim an address, the one
// that comes last in the unit has it: that is the innermost one where they are
// nested as they should be. The entries around it are its callers.
//
// The line is that of the last row at or before the address in the line program of
// the same unit. Code that the linker threw away is left out: it begins at 0 or another
// address that is outside all code.
package dwarf

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
)

// Data is the debugging information of one file: the contents of its sections,
// decompressed and relocated. It must not be changed while Readers use it.
type Data struct {
	Big      bool // big-endian
	AddrSize int  // bytes of an address in this file's class, 4 or 8

	Info       []byte // .debug_info
	Abbrev     []byte // .debug_abbrev
	Line       []byte // .debug_line
	Str        []byte // .debug_str
	LineStr    []byte // .debug_line_str
	StrOffsets []byte // .debug_str_offsets
	Addr       []byte // .debug_addr
	Ranges     []byte // .debug_ranges
	Rnglists   []byte // .debug_rnglists

	// Text are the addresses of code, in ascending order and disjoint. What begins
	// elsewhere was thrown away by the linker, and is left out.
	Text []Range

	// Sup is the supplementary file that dwz put common parts into, or nil.
	Sup *Data

	// Split finds a unit that was split off, by its ID and by the name that the
	// compiler gave it; nil if it is not found. A Data without Split finds none.
	Split func(id uint64, dir, name string) *Data

	// Peek copies bytes of Info, from an offset on, and reports whether they are all
	// there. Sweep looks through it at the beginnings of units, if it is not nil: where
	// Info is a mapped file, a page for each costs more.
	Peek func(b []byte, offset uint64) bool

	// Stored is how many bytes the sections have in their file, where some are compressed; 0
	// where none is.
	Stored int64

	units     []Unit
	budget    *budget
	allowance struct{ work, memory int64 } // what the budget was at first
}

// budget is what Readers of a Data may take together.
type budget struct {
	work   atomic.Int64 // bytes that are looked at
	memory atomic.Int64 // bytes of what is made of them
}

// Range is the addresses from Low up to, and without, High.
type Range struct{ Low, High uint64 }

// Error is damage found in DWARF.
type Error struct {
	Section string
	Offset  uint64 // in the section
	Msg     string // what was wrong
}

// Error returns the damage and its place.
func (e *Error) Error() string {
	return fmt.Sprintf("%s offset %#x: %s", e.Section, e.Offset, e.Msg)
}

func (d *Data) fail(section string, offset uint64, format string, args ...any) error {
	return &Error{section, offset, fmt.Sprintf(format, args...)}
}

// Budget of work. Parts of DWARF may be referred to any number of times, and a
// hostile file is all references: what all of them together may cost is bounded
// by a multiple of the size that no compiler's output comes near.
const (
	minBudget    = 32 << 20
	budgetFactor = 32
)

// The same for memory, as a multiple of the size in the file, which a hostile one makes up to
// a thousand times as large by compression. Sections by compilers become two to five times as
// large by it.
const (
	minMemory    = 96 << 20
	memoryFactor = 6
)

// Units and functions can share lists of ranges, and units line programs, but each has
// its own spans and pieces of them: about so many bytes are kept of each.
const (
	unitCost  = 192
	spanCost  = 64
	pieceCost = 40
	rowCost   = 40
	scopeCost = 96
)

// open prepares d for Readers.
func (d *Data) open() {
	total := 0
	for _, section := range [][]byte{d.Info, d.Abbrev, d.Line, d.Str, d.LineStr, d.StrOffsets, d.Addr, d.Ranges, d.Rnglists} {
		total += len(section)
	}
	d.budget = new(budget)
	d.allowance.work = minBudget + budgetFactor*int64(total)
	d.allowance.memory = minMemory + memoryFactor*cmp.Or(d.Stored, int64(total))
	d.Renew()
	d.budget.memory.Store(d.allowance.memory)
}

// Renew lets Readers spend again what they could at first. It is for a Data that is
// asked again and again, before each question.
func (d *Data) Renew() {
	if d.budget != nil { // else it could not be opened, and nobody reads it
		d.budget.work.Store(d.allowance.work)
	}
}

// spend takes n bytes of work from the budget.
func (d *Data) spend(n int) error {
	if d.budget.work.Add(-int64(n)) < 0 {
		return d.fail(".debug_info", 0, "its parts refer to each other far too often")
	}
	return nil
}

// failAfter returns the damage that was found after n bytes of work, and takes that work from
// the budget: any number of units may refer to damage at the end of one long table.
func (d *Data) failAfter(n int, section string, offset uint64, format string, args ...any) error {
	if err := d.spend(max(n, 0)); err != nil {
		return err
	}
	return d.fail(section, offset, format, args...)
}

// hold takes n bytes of memory from the budget, for what is at an offset of a section.
func (d *Data) hold(n int, section string, offset uint64) error {
	if d.budget.memory.Add(-int64(n)) < 0 {
		return d.fail(section, offset, "it takes more than %d MiB of memory up to here, far more than any compiler's output of its size", d.allowance.memory>>20)
	}
	return nil
}

// isSpent reports whether nothing of the budget is left.
func (d *Data) isSpent() bool { return d.budget.work.Load() < 0 || d.budget.memory.Load() < 0 }

// isText reports whether v is an address of code.
func (d *Data) isText(v uint64) bool {
	for i := 0; i < min(len(d.Text), 4); i++ { // most code is in one of the first
		if r := &d.Text[i]; v < r.High {
			return r.Low <= v
		}
	}
	i := sort.Search(len(d.Text), func(i int) bool { return d.Text[i].High > v })
	return i < len(d.Text) && d.Text[i].Low <= v
}

// clip returns the end of code that starts in Text and is said to end at high: nothing
// reaches beyond the last code.
func (d *Data) clip(high uint64) uint64 { return min(high, d.Text[len(d.Text)-1].High) }

// unitAt returns the unit that holds the entry at an offset of .debug_info.
func (d *Data) unitAt(offset uint64) *Unit {
	i, exact := slices.BinarySearchFunc(d.units, offset, func(u Unit, offset uint64) int {
		switch {
		case u.end <= offset:
			return -1
		case u.start > offset:
			return 1
		}
		return 0
	})
	if !exact {
		return nil
	}
	return &d.units[i]
}

// A String is a string where it is in its section: a place, which costs nothing, and
// bytes once they are asked for. The zero value is no string.
type String struct{ tail []byte }

// stringAt returns the string at an offset of b.
func stringAt(b []byte, offset uint64) String {
	if offset >= uint64(len(b)) {
		return String{}
	}
	return String{b[offset:]}
}

// Pointer returns what is equal for the same string at the same place, and nil for no
// string. Linkers keep one copy of each, so what has another place mostly differs.
func (s String) Pointer() *byte {
	if len(s.tail) == 0 {
		return nil
	}
	return &s.tail[0]
}

// Bytes returns the string, which is part of its section. A string without an end is
// none.
func (s String) Bytes() []byte {
	n := bytes.IndexByte(s.tail[:min(len(s.tail), maxString)], 0)
	if n <= 0 {
		return nil
	}
	return s.tail[:n:n]
}

// isEmpty reports whether there is no string, or one without bytes.
func (s String) isEmpty() bool { return len(s.tail) == 0 || s.tail[0] == 0 }

// maxString is the longest name that is believed. The longest that a C++ compiler
// was seen to write have some ten thousand bytes.
const maxString = 64 << 10
