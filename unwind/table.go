package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"hallmark/addr"
)

// ErrFormat is what errors about malformed tables wrap.
var ErrFormat = errors.New("malformed unwind table")

// Flags of a table.
type Flags uint8

// The flags.
const (
	// GapsKeepFP says that code without call frame information in this file keeps frame
	// pointers: Go's, and what V8 compiles ahead.
	GapsKeepFP Flags = 1 << iota
)

const (
	magic      = 0x33575548 // "HUW3"
	headerSize = 48
	ruleSize   = 16
	rowSize    = 3
	granule    = 256
)

// A Table says for each place of a file how to get to the caller's frame. Its methods
// may be called by several goroutines at once.
type Table struct {
	raw                   []byte
	base                  addr.Offset
	granules, rows, rules uint32
	directory, blocks     []byte
	ruleBytes             []byte
}

// Parse returns the table that b holds, which is not copied and must not change. A
// table that lacks what its header promises, or whose parts contradict each other, is an
// error that wraps ErrFormat: no lookup in a Table goes beyond its bytes.
func Parse(b []byte) (*Table, error) {
	if len(b) < headerSize || binary.LittleEndian.Uint32(b) != magic {
		return nil, fmt.Errorf("%w: no header", ErrFormat)
	}
	order := binary.LittleEndian
	t := &Table{
		raw:      b,
		base:     addr.Offset(order.Uint64(b[8:])),
		granules: order.Uint32(b[16:]),
		rows:     order.Uint32(b[20:]),
		rules:    order.Uint32(b[24:]),
	}
	if size := order.Uint32(b[40:]); uint64(size) != uint64(len(b)) || size%8 != 0 {
		return nil, fmt.Errorf("%w: %d bytes, its header says %d", ErrFormat, len(b), size)
	}
	part := func(field int, n uint64) []byte {
		at := uint64(order.Uint32(b[field:]))
		if at%8 != 0 || at < headerSize || at > uint64(len(b)) || n > uint64(len(b))-at {
			return nil
		}
		return b[at : at+n : at+n]
	}
	t.directory = part(28, 4*(uint64(t.granules)+1))
	t.blocks = part(32, rowSize*uint64(t.rows))
	t.ruleBytes = part(36, ruleSize*uint64(t.rules))
	if t.directory == nil || t.blocks == nil || t.ruleBytes == nil || t.rules == 0 || t.rules > 1<<16 || t.base%granule != 0 {
		return nil, fmt.Errorf("%w: parts beyond its %d bytes", ErrFormat, len(b))
	}
	if before := order.Uint32(b[32:]) - 2; order.Uint16(b[before:]) != 0 || [ruleSize]byte(t.ruleBytes) != [ruleSize]byte{} {
		return nil, fmt.Errorf("%w: a rule before its first row", ErrFormat)
	}
	return t, t.check()
}

// check looks at what lookups rely on.
func (t *Table) check() error {
	last := uint32(0)
	for g := range t.granules + 1 {
		n := t.firstOf(g)
		if n < last || n > t.rows || g == 0 && n > 0 || n-last > granule {
			return fmt.Errorf("%w: granule %d begins with row %d of %d, the one before with row %d", ErrFormat, g, n, t.rows, last)
		}
		last = n
	}
	if last != t.rows {
		return fmt.Errorf("%w: granules have %d rows of %d", ErrFormat, last, t.rows)
	}
	for g := range t.granules {
		first := t.firstOf(g)
		for i := range t.firstOf(g+1) - first {
			if n := t.ruleOf(t.block(g), i); uint32(n) >= t.rules {
				return fmt.Errorf("%w: row %d has rule %d of %d", ErrFormat, first+i, n, t.rules)
			}
		}
	}
	return nil
}

// firstOf returns the number of the first row of a granule.
func (t *Table) firstOf(g uint32) uint32 { return binary.LittleEndian.Uint32(t.directory[4*g:]) }

// block returns the rows of a granule.
func (t *Table) block(g uint32) []byte {
	return t.blocks[rowSize*t.firstOf(g) : rowSize*t.firstOf(g+1)]
}

// ruleOf returns the number of the rule of row i of a block.
func (t *Table) ruleOf(block []byte, i uint32) uint16 {
	return binary.LittleEndian.Uint16(block[uint32(len(block))/rowSize+2*i:])
}

// Bytes returns the table as it was given to Parse.
func (t *Table) Bytes() []byte { return t.raw }

// Machine returns whose code the table is of.
func (t *Table) Machine() Machine { return Machine(t.raw[4]) }

// Flags returns the table's flags.
func (t *Table) Flags() Flags { return Flags(t.raw[5]) }

// Rows returns how many rows the table has.
func (t *Table) Rows() int { return int(t.rows) }

// Rules returns how many distinct rules the table has.
func (t *Table) Rules() int { return int(t.rules) }

// Lookup returns the rule for the instruction at an offset of the file. Where there is
// none it is of kind None.
func (t *Table) Lookup(off addr.Offset) Rule {
	if off < t.base || uint64(off-t.base)/granule >= uint64(t.granules) {
		return Rule{}
	}
	g := uint32((off - t.base) / granule)
	low := byte(off - t.base)
	first, block := t.firstOf(g), t.block(g)
	row, end := uint32(0), uint32(len(block))/rowSize
	for row < end {
		middle := row + (end-row)/2
		if block[middle] <= low {
			row = middle + 1
		} else {
			end = middle
		}
	}
	switch {
	case row > 0:
		return t.rule(t.ruleOf(block, row-1))
	case first == 0:
		return Rule{}
	}
	// The last row before is at the end of the block that has it.
	return t.rule(binary.LittleEndian.Uint16(t.blocks[rowSize*first-2:]))
}

// rule returns the rule of this number.
func (t *Table) rule(n uint16) Rule {
	b := t.ruleBytes[ruleSize*int(n):][:ruleSize]
	r := Rule{
		Kind:     Kind(b[0]),
		Register: Register(b[1]),
		Flags:    b[2],
		RA:       int8(b[3]),
		Offset:   int32(binary.LittleEndian.Uint32(b[4:])),
		Addend:   int8(b[14]),
		Link:     Register(b[15]),
	}
	for i := range r.Saved {
		r.Saved[i] = int8(b[8+i])
	}
	return r
}

// Version is that of what Build makes: whoever keeps tables must not use those of another
// version. It is raised whenever the same file gets another table.
//
//	1  until tables knew their version: V8's builtins and Go's pclntab came in it
//	2  the first that is checked by what is built
//	3  saved registers at the frame pointer, followed functions, stacks of Go's scheduler
//	4  where Go grows stacks, and where its scheduler's begin
//	5  rows in blocks
const Version = 5

// Stats say what a table has.
type Stats struct {
	Rows, Rules int
	Size        int    // bytes of the table
	Known       uint64 // bytes of code that have a rule

	// Silent are the rows that say nothing, by their reason, and SilentBytes how much code
	// they are. Code before the first row and behind the last is not counted.
	Silent      [4]int
	SilentBytes [4]uint64

	// Lost are the rows whose callers' frame pointers cannot be found.
	Lost int
}

// Stats counts what is in a table.
func (t *Table) Stats() Stats {
	s := Stats{Rows: t.Rows(), Rules: t.Rules(), Size: len(t.raw)}
	for row := range t.All() {
		n := uint64(row.End - row.Start)
		switch r := &row.Rule; {
		case r.Kind == None:
			s.Silent[r.Silence()&3]++
			s.SilentBytes[r.Silence()&3] += n
		default:
			s.Known += n
			if places := r.Kind == Reg || r.Kind == Deref; places && r.Saved[t.Machine().framePointer()] == Unknown {
				s.Lost++
			}
		}
	}
	return s
}

// A Row says that a rule holds for the instructions from Start up to End.
type Row struct {
	Start, End addr.Offset
	Rule       Rule
}

// All returns the rows of a table in the order of the file.
func (t *Table) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		var last Row
		for g := range t.granules {
			first, block := t.firstOf(g), t.block(g)
			for i := range uint32(len(block)) / rowSize {
				start := t.base + addr.Offset(g)*granule + addr.Offset(block[i])
				last.End = start
				if first+i > 0 && !yield(last) {
					return
				}
				last = Row{Start: start, Rule: t.rule(t.ruleOf(block, i))}
			}
		}
		if t.rows > 0 {
			last.End = t.base + addr.Offset(t.granules)*granule
			yield(last)
		}
	}
}
