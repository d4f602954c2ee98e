// Package pclntab reads the table that Go programs carry for their own tracebacks,
// stripped ones too: which functions there are, and lists of values by program counter.
// The source of the format is Go's runtime/symtab.go.
//
// The table is doubtful: no number in it makes a read go beyond its bytes.
package pclntab

import (
	"slices"
	"sort"
	"strings"
)

// The magic numbers (Go's internal/abi/symtab.go). Each came with another layout of the
// header, of the function records or of the inline trees.
const (
	Go12  = 0xfffffffb // Go 1.2 to 1.15
	Go116 = 0xfffffffa // 1.16 and 1.17: the header has where the tables are
	Go118 = 0xfffffff0 // 1.18 and 1.19: addresses are relative to the text
	Go120 = 0xfffffff1 // since 1.20: functions have a first line
)

// maxList bounds the bytes of one list of values that are read, at ten times what the
// largest programs have.
const maxList = 1 << 18

// A Table is a pclntab.
type Table struct {
	Words
	Magic   uint32
	Quantum uint64 // of instruction addresses
	Text    uint64 // what the addresses of functions are relative to, see Locate
	NFunc   uint64

	Data    string // all of it, of which the others are parts
	Functab string // addresses of functions, and where their records are
	Records string
	Names   string
	CUs     string // file numbers of the compilation units; Go 1.2 has none
	Files   string
	PCs     string // values by program counter
}

// A Func is a function's record (runtime/runtime2.go, _func), as far as every reader
// needs it.
type Func struct {
	Entry, End   uint64 // virtual addresses
	Name         uint32 // in Names
	PCFile, PCLn uint32 // lists in PCs
	CU           uint32
	Start        uint32 // line
	NPCData      uint32
	NFuncData    uint32
	Lists        uint64 // where in Records the list of pcdata begins, which that of funcdata follows
}

// A Frame is what a function's record says of its stack.
type Frame struct {
	PCSP  uint32 // list in PCs of the bytes between the stack pointer and where it was at the entry; 0 for none
	ID    uint8  // an abi.FuncID, whose numbers differ from version to version
	Flags uint8  // abi.FuncFlag; 0 before Go 1.17
}

// Flags of a Frame (abi.FuncFlag).
const (
	TopFrame = 1 << iota // stacks begin here
	SPWrite              // it writes the stack pointer in ways that no list has
	Asm                  // written in assembly language; since Go 1.19
)

// Parse finds the tables at the start of data (runtime/symtab.go, pcHeader), and reports
// whether it knows their form. Functions have no addresses before Locate.
func Parse(data string, big bool) (t Table, ok bool) {
	t = Table{Data: data, Words: Words{Big: big}}
	if len(data) < 8 {
		return t, false
	}
	t.Magic = t.U32(data, 0)
	t.Quantum, t.Ptr = uint64(data[6]), uint64(data[7])
	if data[4] != 0 || data[5] != 0 || t.Quantum == 0 || t.Quantum > 4 || t.Ptr != 4 && t.Ptr != 8 {
		return t, false
	}
	t.NFunc = t.Header(0)
	switch t.Magic {
	case Go12:
		ok = t.parseGo12()
	case Go116:
		ok = t.parseTables(2)
	case Go118, Go120:
		ok = t.parseTables(3)
	}
	t.Names = t.Names[:strings.LastIndexByte(t.Names, 0)+1] // so every name has an end
	return t, ok && t.NFunc < uint64(len(t.Functab))/(2*t.entrySize())
}

// Header returns the nth address-sized number of the header.
func (t *Table) Header(n uint64) uint64 { return t.Word(t.Data, 8+n*t.Ptr, t.Ptr) }

// parseTables finds the tables from n on in the header: names, files by
// compilation unit, files, values by program counter, functions.
func (t *Table) parseTables(n uint64) bool {
	at := [...]uint64{t.Header(n), t.Header(n + 1), t.Header(n + 2), t.Header(n + 3), t.Header(n + 4), uint64(len(t.Data))}
	if !slices.IsSorted(at[:]) {
		return false
	}
	t.Names = t.Data[at[0]:at[1]]
	t.CUs = t.Data[at[1]:at[2]]
	t.Files = t.Data[at[2]:at[3]]
	t.PCs = t.Data[at[3]:at[4]]
	t.Functab = t.Data[at[4]:]
	t.Records = t.Functab
	return true
}

// parseGo12 finds the tables of the first form, where offsets are from the start
// of the section (https://golang.org/s/go12symtab).
func (t *Table) parseGo12() bool {
	first := 8 + t.Ptr
	if t.NFunc > uint64(len(t.Data)) || first+(2*t.NFunc+1)*t.Ptr+4 > uint64(len(t.Data)) {
		return false
	}
	t.Functab = t.Data[first:]
	files := t.U32(t.Functab, (2*t.NFunc+1)*t.Ptr)
	if uint64(files) > uint64(len(t.Data)) {
		return false
	}
	t.Files = t.Data[files:]
	t.Records, t.Names, t.PCs = t.Data, t.Data, t.Data
	return true
}

// IsSound checks that functions follow each other, and that each has a record and a name;
// inCode says whether all addresses from one up to another are code.
func (t *Table) IsSound(inCode func(start, end uint64) bool) bool {
	if t.NFunc == 0 || !inCode(t.Entry(0), t.Entry(t.NFunc)) {
		return false
	}
	for i := range t.NFunc {
		f := t.Function(i)
		if f.End < f.Entry || !t.hasRecord(i) || !t.IsName(f.Name) {
			return false
		}
	}
	return true
}

// hasRecord reports whether the record of function i is there as a whole.
func (t *Table) hasRecord(i uint64) bool {
	size, n := t.entrySize()+4*t.recordWords(), uint64(len(t.Records))
	return n >= size && t.record(i) <= n-size
}

// IsName reports whether a name starts at off in Names. In the first form names follow
// something that is no name.
func (t *Table) IsName(off uint32) bool {
	if uint64(off) >= uint64(len(t.Names)) || t.Names[off] == 0 {
		return false
	}
	return t.Magic == Go12 || off == 0 || t.Names[off-1] == 0
}

// Name returns the name that starts at off in Names.
func (t *Table) Name(off uint32) string {
	if uint64(off) >= uint64(len(t.Names)) {
		return ""
	}
	s := t.Names[off:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return ""
}

// Search returns the index of the function that pc is in, or in the padding
// behind it.
func (t *Table) Search(pc uint64) (uint64, bool) {
	after := sort.Search(int(t.NFunc)+1, func(i int) bool { return t.Entry(uint64(i)) > pc })
	return uint64(after) - 1, after > 0 && after <= int(t.NFunc)
}

// Entry returns the address of function i; that of function NFunc is the end.
func (t *Table) Entry(i uint64) uint64 {
	size := t.entrySize()
	return t.Text + t.Word(t.Functab, 2*i*size, size)
}

// IsRelative reports whether functions are relative to the text, and funcdata to
// an address in moduledata: 32-bit numbers where there were addresses before.
func (t *Table) IsRelative() bool { return t.Magic == Go118 || t.Magic == Go120 }

// entrySize returns the bytes of an address or offset in the functab.
func (t *Table) entrySize() uint64 {
	if t.IsRelative() {
		return 4
	}
	return t.Ptr
}

// record returns where the record of function i is.
func (t *Table) record(i uint64) uint64 {
	size := t.entrySize()
	return t.Word(t.Functab, (2*i+1)*size, size)
}

// recordWords returns the number of 32-bit words in a record after its address.
// The number of pcdata is among them, that of funcdata in the last; the lists of
// both follow.
func (t *Table) recordWords() uint64 {
	switch t.Magic {
	case Go12:
		return 8
	case Go120:
		return 10
	default:
		return 9
	}
}

// Function returns function i. In the first form it has neither pcdata nor funcdata.
func (t *Table) Function(i uint64) Func {
	first := t.record(i) + t.entrySize()
	field := func(n uint64) uint32 { return t.U32(t.Records, first+4*n) }
	f := Func{
		Entry: t.Entry(i), End: t.Entry(i + 1),
		Name: field(0), PCFile: field(4), PCLn: field(5),
	}
	if t.Magic == Go12 {
		return f
	}
	last := t.recordWords() - 1
	f.NPCData, f.CU = field(6), field(7)
	if t.Magic == Go120 {
		f.Start = field(8)
	}
	f.NFuncData, _, _ = t.lastWord(field(last))
	f.Lists = first + 4*(last+1)
	return f
}

// Frame returns what the record of function i says of its stack.
func (t *Table) Frame(i uint64) Frame {
	first := t.record(i) + t.entrySize()
	f := Frame{PCSP: t.U32(t.Records, first+4*3)}
	_, f.ID, f.Flags = t.lastWord(t.U32(t.Records, first+4*(t.recordWords()-1)))
	return f
}

// lastWord returns what the last word of a record holds: bytes, whose order in memory is
// that of the function's ID, its flags, one unused and the number of funcdata.
func (t *Table) lastWord(word uint32) (funcdata uint32, id, flags uint8) {
	if t.Big {
		return word & 0xff, uint8(word >> 24), uint8(word >> 16)
	}
	return word >> 24, uint8(word), uint8(word >> 8)
}

// Value returns what the list at off has for pc in a function that starts at entry
// (runtime/symtab.go, pcvalue).
func (t *Table) Value(off uint32, entry, pc uint64) (value int32, ok bool) {
	at := entry
	value = -1
	s := t.list(off)
	for first := true; ; first = false {
		change, advance, size := pair(s)
		if size == 0 || change == 0 && !first {
			return -1, false
		}
		value += signed(change)
		at += uint64(advance) * t.Quantum
		if pc < at {
			return value, true
		}
		s = s[size:]
	}
}

// EachValue calls each with the values of the list at off, and for how many
// quanta of instructions each stays, until it returns false: the list is one of varints, in
// turn by how much the value changes and for how long it stays.
func (t *Table) EachValue(off uint32, each func(value int32, advance uint32) bool) {
	value := int32(-1)
	s := t.list(off)
	for first := true; ; first = false {
		change, advance, size := pair(s)
		if size == 0 || change == 0 && !first {
			return
		}
		value += signed(change)
		if !each(value, advance) {
			return
		}
		s = s[size:]
	}
}

// list returns the bytes from off on, as many as a list may have; "" for no list.
func (t *Table) list(off uint32) string {
	if off == 0 || uint64(off) >= uint64(len(t.PCs)) {
		return ""
	}
	s := t.PCs[off:]
	return s[:min(len(s), maxList)]
}

// pair reads by how much a value changes, and for how long the new one stays. The size is 0 where one of the
// two is damaged.
func pair(s string) (change, advance uint32, size int) {
	if len(s) >= 2 && s[0]|s[1] < 0x80 { // as nearly all
		return uint32(s[0]), uint32(s[1]), 2
	}
	return longPair(s)
}

func longPair(s string) (change, advance uint32, size int) {
	change, n := uvarint(s)
	if n == 0 {
		return 0, 0, 0
	}
	advance, m := uvarint(s[n:])
	if m == 0 {
		return 0, 0, 0
	}
	return change, advance, n + m
}

// signed returns the number that has this one for its zigzag code.
func signed(n uint32) int32 { return int32(-(n & 1) ^ (n >> 1)) }

// uvarint reads an unsigned LEB128 number of 32 bits and returns its length, 0
// for a damaged one.
func uvarint(s string) (n uint32, size int) {
	for i := 0; i < len(s) && i < 5; i++ {
		n |= uint32(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, i + 1
		}
	}
	return 0, 0
}
