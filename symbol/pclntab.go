package symbol

import (
	"sort"
	"strings"

	"hallmark/addr"
)

// The magic numbers of pclntab (Go's internal/abi/symtab.go). Each came with
// another layout of the header, of the function records or of the inline trees.
const (
	go12magic  = 0xfffffffb // Go 1.2 to 1.15
	go116magic = 0xfffffffa // 1.16 and 1.17: the header tells where the tables are
	go118magic = 0xfffffff0 // 1.18 and 1.19: addresses are relative to the text
	go120magic = 0xfffffff1 // since 1.20: functions have a first line
)

// Indices of the tables that belong to a function (internal/abi/symtab.go), the
// same since Go 1.16.
const (
	pcdataInlTreeIndex = 2
	funcdataInlTree    = 3
)

// Limits on what one lookup reads, ten times what the largest programs have.
const (
	maxPCTable     = 1 << 18 // bytes of one table of a function
	maxInlineDepth = 64
)

// pclntab answers from the table that Go programs carry for their own tracebacks,
// stripped ones too: functions, files, lines and inlined calls. The source of the
// format is Go's runtime/symtab.go.
//
// Before Go 1.16, and where the inline trees cannot be trusted, inlined calls are
// not known. Then an instruction of an inlined function has the name of the
// function it was inlined into, and a file and line of its own.
type pclntab struct {
	words
	magic   uint32
	quantum uint64 // of instruction addresses
	text    uint64 // what the addresses of functions are relative to
	nfunc   uint64

	data    string // the section, of which the others are parts
	functab string // addresses of functions, and where their records are
	records string
	names   string
	cus     string // file numbers of the compilation units; Go 1.2 has none
	files   string
	pcs     string // values by program counter

	trees inlineTrees
}

// goFunc is a function record (runtime/runtime2.go, _func).
type goFunc struct {
	entry, end   uint64 // virtual addresses
	name         uint32
	pcfile, pcln uint32
	cu           uint32
	start        uint32 // line
	pcinline     uint32
	tree         uint64 // virtual address of the inline tree, 0 without
}

// find answers for a virtual address. One in the padding behind a function has no
// function.
func (t *pclntab) find(v addr.Virt) []Frame {
	pc := uint64(v)
	i, ok := t.search(pc)
	if !ok {
		return nil
	}
	f := t.function(i)
	if _, ok := t.value(f.pcln, &f, pc); !ok && f.pcln != 0 {
		return nil
	}
	var few [8]inlinedCall
	calls := t.inlined(few[:0], &f, pc)
	frames := make([]Frame, 0, len(calls)+1)
	for _, c := range calls {
		frame := t.frame(c.name, c.start, &f, pc)
		frame.Inlined = true
		frames = append(frames, frame)
		pc = f.entry + uint64(c.parent)
	}
	return append(frames, t.frame(f.name, f.start, &f, pc))
}

// frame returns the function with this name and first line, at the file and line
// of pc.
func (t *pclntab) frame(name, start uint32, f *goFunc, pc uint64) Frame {
	linkage := stringAt(t.names, name)
	frame := Frame{Linkage: linkage, Start: int(startLine(start)), Lang: LangGo}
	file, ok1 := t.value(f.pcfile, f, pc)
	line, ok2 := t.value(f.pcln, f, pc)
	if ok1 && ok2 && file >= 0 && line > 0 {
		frame.File, frame.Line = t.file(f.cu, uint32(file)), int(line)
	}
	return frame
}

// elideTypeArguments returns the name of a function as Go's tracebacks and
// profiles show it: "slices.Sort[...]".
func elideTypeArguments(name string) string {
	open, end := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if open < 0 || end < open {
		return name
	}
	return name[:open] + "[...]" + name[end+1:]
}

// file returns the name of a file by its number in a compilation unit.
func (t *pclntab) file(cu, number uint32) string {
	if t.magic == go12magic {
		if number == 0 {
			return "" // the place of file 0 holds the number of files
		}
		return stringAt(t.names, t.u32(t.files, 4*uint64(number)))
	}
	return stringAt(t.files, t.u32(t.cus, 4*(uint64(cu)+uint64(number))))
}

// search returns the index of the function that pc is in, or in the padding
// behind it.
func (t *pclntab) search(pc uint64) (uint64, bool) {
	after := sort.Search(int(t.nfunc)+1, func(i int) bool { return t.entry(uint64(i)) > pc })
	return uint64(after) - 1, after > 0 && after <= int(t.nfunc)
}

// entry returns the address of function i; that of function nfunc is the end.
func (t *pclntab) entry(i uint64) uint64 {
	size := t.entrySize()
	return t.text + t.word(t.functab, 2*i*size, size)
}

// isRelative reports whether functions are relative to the text, and funcdata to
// an address in moduledata: 32-bit numbers where there were addresses before.
func (t *pclntab) isRelative() bool { return t.magic == go118magic || t.magic == go120magic }

// entrySize returns the bytes of an address or offset in the functab.
func (t *pclntab) entrySize() uint64 {
	if t.isRelative() {
		return 4
	}
	return t.ptr
}

// record returns where the record of function i is.
func (t *pclntab) record(i uint64) uint64 {
	size := t.entrySize()
	return t.word(t.functab, (2*i+1)*size, size)
}

// recordWords returns the number of 32-bit words in a record after its address.
// The number of pcdata is among them, that of funcdata in the last; the lists of
// both follow.
func (t *pclntab) recordWords() uint64 {
	switch t.magic {
	case go12magic:
		return 8
	case go120magic:
		return 10
	default:
		return 9
	}
}

// function returns function i.
func (t *pclntab) function(i uint64) goFunc {
	first := t.record(i) + t.entrySize()
	field := func(n uint64) uint32 { return t.u32(t.records, first+4*n) }
	f := goFunc{
		entry: t.entry(i), end: t.entry(i + 1),
		name: field(0), pcfile: field(4), pcln: field(5),
	}
	if t.magic == go12magic {
		return f
	}
	npcdata, last := uint64(field(6)), t.recordWords()-1
	f.cu = field(7)
	if t.magic == go120magic {
		f.start = field(8)
	}
	if npcdata > pcdataInlTreeIndex {
		f.pcinline = field(last + 1 + pcdataInlTreeIndex)
	}
	if t.nfuncdata(field(last)) > funcdataInlTree {
		f.tree = t.treeAddress(first + 4*(last+1+npcdata))
	}
	return f
}

// nfuncdata returns the number of funcdata, which is the last byte in memory of
// its word.
func (t *pclntab) nfuncdata(word uint32) uint32 {
	if t.big {
		return word & 0xff
	}
	return word >> 24
}

// value returns what the table at off has for pc (runtime/symtab.go, pcvalue).
func (t *pclntab) value(off uint32, f *goFunc, pc uint64) (value int32, ok bool) {
	at := f.entry
	value = -1
	t.eachValue(off, func(v int32, advance uint32) bool {
		at += uint64(advance) * t.quantum
		value, ok = v, pc < at
		return !ok
	})
	if !ok {
		value = -1
	}
	return value, ok
}

// eachValue calls each with the values of the table at off, and for how many
// instructions each stays, until it returns false: the table is a list of varints, in
// turn by how much the value changes and for how many instructions it stays.
func (t *pclntab) eachValue(off uint32, each func(value int32, advance uint32) bool) {
	if off == 0 || uint64(off) >= uint64(len(t.pcs)) {
		return
	}
	s := t.pcs[off:]
	s = s[:min(len(s), maxPCTable)]
	value := int32(-1)
	for first := true; ; first = false {
		change, n := uvarint(s)
		if n == 0 || change == 0 && !first {
			return
		}
		value += int32(-(change & 1) ^ (change >> 1))
		s = s[n:]
		advance, n := uvarint(s)
		if n == 0 || !each(value, advance) {
			return
		}
		s = s[n:]
	}
}

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

// words reads numbers in a file's byte order from strings. Past the end of the
// string it reads 0.
type words struct {
	big bool
	ptr uint64 // bytes of an address
}

func (w words) u32(s string, off uint64) uint32 {
	if off > uint64(len(s)) || uint64(len(s))-off < 4 {
		return 0
	}
	b := s[off : off+4]
	if w.big {
		return uint32(b[3]) | uint32(b[2])<<8 | uint32(b[1])<<16 | uint32(b[0])<<24
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// word reads a number of size bytes, 4 or 8.
func (w words) word(s string, off, size uint64) uint64 {
	first := uint64(w.u32(s, off))
	switch {
	case size == 4:
		return first
	case w.big:
		return first<<32 | uint64(w.u32(s, off+4))
	default:
		return first | uint64(w.u32(s, off+4))<<32
	}
}
