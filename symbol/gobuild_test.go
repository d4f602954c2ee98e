package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/pclntab"
)

// goProgram builds ELF files with the tables of a Go program: two functions, of
// which the first has a call of a call inlined.
//
//	0x00 main.outer  a.go:11
//	0x10   main.middle  b.go:21, called at a.go:12
//	0x18     main.inner  b.go:31, called at b.go:22
//	0x30 main.outer  a.go:13
//	0x40 main.leaf   a.go:41
//	0x50 padding
//	0x60 end
type goProgram struct {
	magic uint32
	ptr   int
	order binary.ByteOrder

	// damage may change the parts before they are joined.
	damage func(*goParts)
}

// goParts are the contents of the sections, and the words of moduledata.
type goParts struct {
	pclntab, rodata []byte
	moduledata      []uint64
}

const (
	goText       = 0x10000
	goRodata     = 0x20000
	goPclntab    = 0x30000
	goModuledata = 0x40000
)

func (p goProgram) build() []byte {
	parts := goParts{rodata: p.inlineTree()}
	header, tables := p.tables()
	parts.moduledata = p.moduledata(header)
	parts.pclntab = append(p.header(header), tables...)
	if p.damage != nil {
		p.damage(&parts)
	}
	var moduledata []byte
	for _, w := range parts.moduledata {
		moduledata = p.word(moduledata, w)
	}
	return p.elf(parts.pclntab, parts.rodata, moduledata)
}

func (p goProgram) elf(pclntab, rodata, moduledata []byte) []byte {
	class, machine := elf.ELFCLASS64, elf.EM_X86_64
	if p.ptr == 4 {
		class, machine = elf.ELFCLASS32, elf.EM_386
	}
	const alloc = elf.SHF_ALLOC
	return elftest.File{Class: class, Machine: machine, Order: p.order, Type: elf.ET_EXEC,
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: alloc | elf.SHF_EXECINSTR, Addr: goText, Data: make([]byte, 0x80)},
			{Name: ".rodata", Type: elf.SHT_PROGBITS, Flags: alloc, Addr: goRodata, Data: rodata},
			{Name: ".gopclntab", Type: elf.SHT_PROGBITS, Flags: alloc, Addr: goPclntab, Data: pclntab},
			{Name: ".noptrdata", Type: elf.SHT_PROGBITS, Flags: alloc | elf.SHF_WRITE, Addr: goModuledata, Data: moduledata, Align: 8},
		},
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text"}},
	}.Build()
}

func (p goProgram) u32(b []byte, n uint32) []byte {
	var word [4]byte
	p.order.PutUint32(word[:], n)
	return append(b, word[:]...)
}

func (p goProgram) word(b []byte, n uint64) []byte {
	if p.ptr == 4 {
		return p.u32(b, uint32(n))
	}
	var word [8]byte
	p.order.PutUint64(word[:], n)
	return append(b, word[:]...)
}

// Names and files are at these offsets of their tables.
var (
	goNames = []byte("main.outer\x00main.middle\x00main.inner\x00main.leaf\x00")
	goFiles = []byte("a.go\x00b.go\x00")
)

const nameOuter, nameMiddle, nameInner, nameLeaf = 0, 11, 23, 34

// inlineTree returns the tree of main.outer, after something else.
func (p goProgram) inlineTree() []byte {
	b := make([]byte, 8)
	for _, c := range []struct{ name, parent, start uint32 }{
		{nameMiddle, 0x08, 20},
		{nameInner, 0x10, 30},
	} {
		b = append(b, 0, 0, 0, 0)
		if p.magic != pclntab.Go120 {
			b = p.u32(p.u32(b, 0), 0) // file and line of the call site
		}
		b = p.u32(p.u32(b, c.name), c.parent)
		if p.magic == pclntab.Go120 {
			b = p.u32(b, c.start)
		}
	}
	return b
}

// pcTable encodes values, each with where it ends.
func pcTable(b []byte, entry uint32, pairs ...[2]int32) []byte {
	value, at := int32(-1), int32(entry)
	for _, pair := range pairs {
		b = binary.AppendVarint(b, int64(pair[0]-value))
		b = binary.AppendUvarint(b, uint64(pair[1]-at))
		value, at = pair[0], pair[1]
	}
	return append(b, 0)
}

// pcTables are where the values of the functions by program counter are.
type pcTables struct{ files, lines, inline uint32 }

// values returns the tables of values by program counter.
func (p goProgram) values() (b []byte, outer, leaf pcTables) {
	b = []byte{0}
	add := func(entry uint32, pairs ...[2]int32) uint32 {
		at := len(b)
		b = pcTable(b, entry, pairs...)
		return uint32(at)
	}
	outer.files = add(0, [2]int32{0, 0x10}, [2]int32{1, 0x30}, [2]int32{0, 0x40})
	outer.lines = add(0, [2]int32{12, 0x10}, [2]int32{22, 0x18}, [2]int32{31, 0x30}, [2]int32{13, 0x40})
	outer.inline = add(0, [2]int32{-1, 0x10}, [2]int32{0, 0x18}, [2]int32{1, 0x30}, [2]int32{-1, 0x40})
	leaf.files = add(0x40, [2]int32{0, 0x50})
	leaf.lines = add(0x40, [2]int32{41, 0x50})
	return b, outer, leaf
}

// tables returns the offsets of the tables from the start of the pclntab, and
// the tables: names, files by unit, files, values by program counter, functions.
func (p goProgram) tables() (header [5]uint64, b []byte) {
	pcs, outer, leaf := p.values()
	cus := p.u32(p.u32(nil, 0), 5)
	for i, table := range [][]byte{goNames, cus, goFiles, pcs, p.functions(outer, leaf)} {
		header[i] = uint64(p.headerSize() + len(b))
		b = padded(append(b, table...), 8)
	}
	return header, b
}

func padded(b []byte, n int) []byte {
	for len(b)%n != 0 {
		b = append(b, 0)
	}
	return b
}

// entry appends an address of a function as the functab has it.
func (p goProgram) entry(b []byte, at uint32) []byte {
	if p.magic == pclntab.Go116 {
		return p.word(b, goText+uint64(at))
	}
	return p.u32(b, at)
}

// entrySize returns the bytes of an address in the functab.
func (p goProgram) entrySize() int { return len(p.entry(nil, 0)) }

func (p goProgram) offset(b []byte, n int) []byte {
	if p.magic == pclntab.Go116 {
		return p.word(b, uint64(n))
	}
	return p.u32(b, uint32(n))
}

// functions returns the functab and the records behind it.
func (p goProgram) functions(outer, leaf pcTables) []byte {
	first := p.record(0, nameOuter, 10, outer)
	second := p.record(0x40, nameLeaf, 40, leaf)
	start := len(padded(make([]byte, 5*p.entrySize()), 8))
	b := p.offset(p.entry(nil, 0), start)
	b = p.offset(p.entry(b, 0x40), start+len(first))
	b = padded(p.entry(b, 0x60), 8)
	return append(append(b, first...), second...)
}

// record returns the record of the function at a distance from the text.
func (p goProgram) record(at, name, start uint32, values pcTables) []byte {
	npcdata, nfuncdata := uint32(0), byte(0)
	if values.inline != 0 {
		npcdata, nfuncdata = 3, 4
	}
	b := p.entry(nil, at)
	for _, n := range []uint32{name, 0, 0, 0, values.files, values.lines, npcdata, 0} {
		b = p.u32(b, n)
	}
	if p.magic == pclntab.Go120 {
		b = p.u32(b, start)
	}
	b = append(b, 0, 0, 0, nfuncdata)
	if values.inline != 0 {
		b = p.u32(p.u32(p.u32(b, 0), 0), values.inline)
		b = p.funcdata(b)
	}
	return padded(b, 8)
}

// funcdata appends a list of four, of which the last is the inline tree.
func (p goProgram) funcdata(b []byte) []byte {
	if p.magic != pclntab.Go116 {
		return p.u32(p.u32(p.u32(p.u32(b, ^uint32(0)), ^uint32(0)), ^uint32(0)), 8)
	}
	return p.word(p.word(p.word(p.word(padded(b, p.ptr), 0), 0), 0), goRodata+8)
}

func (p goProgram) headerSize() int {
	if p.magic == pclntab.Go116 {
		return 8 + 7*p.ptr
	}
	return 8 + 8*p.ptr
}

func (p goProgram) header(tables [5]uint64) []byte {
	b := p.u32(nil, p.magic)
	b = append(b, 0, 0, 1, byte(p.ptr))
	b = p.word(p.word(b, 2), 2)
	if p.magic != pclntab.Go116 {
		b = p.word(b, 0)
	}
	for _, n := range tables {
		b = p.word(b, n)
	}
	return b
}

func (p goProgram) moduledata(tables [5]uint64) []uint64 {
	md := make([]uint64, pclntab.MDWords+8)
	md[pclntab.MDPCHeader] = goPclntab
	for i, at := range []int{pclntab.MDNames, pclntab.MDCUs, pclntab.MDFiles, pclntab.MDPCs, pclntab.MDRecords} {
		md[at] = goPclntab + tables[i]
	}
	md[pclntab.MDFunctab], md[pclntab.MDFunctabN] = md[pclntab.MDRecords], 3
	md[pclntab.MDMinPC], md[pclntab.MDMaxPC] = goText, goText+0x60
	md[pclntab.MDText], md[pclntab.MDEtext] = goText, goText+0x60
	md[pclntab.MDGofunc118] = goRodata
	if p.magic == pclntab.Go120 {
		md[pclntab.MDGofunc118], md[pclntab.MDGofunc120] = 0, goRodata
	}
	return md
}

// goPrograms returns one of each form.
func goPrograms() []goProgram {
	var programs []goProgram
	for _, magic := range []uint32{pclntab.Go116, pclntab.Go118, pclntab.Go120} {
		for _, ptr := range []int{4, 8} {
			programs = append(programs,
				goProgram{magic: magic, ptr: ptr, order: binary.LittleEndian},
				goProgram{magic: magic, ptr: ptr, order: binary.BigEndian})
		}
	}
	return programs
}

func (p goProgram) String() string {
	return fmt.Sprintf("%#x, %d-byte words, %v", p.magic, p.ptr, p.order)
}

func TestPclntabForms(t *testing.T) {
	for _, p := range goPrograms() {
		t.Run(p.String(), func(t *testing.T) {
			f, err := NewFile(bytes.NewReader(p.build()), "built")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Load(); err != nil {
				t.Fatal(err)
			}
			checkFrames(t, f, 0x00, "main.outer a.go:12")
			checkFrames(t, f, 0x10, "main.middle b.go:22", "main.outer a.go:12")
			checkFrames(t, f, 0x18, "main.inner b.go:31", "main.middle b.go:22", "main.outer a.go:12")
			checkFrames(t, f, 0x2f, "main.inner b.go:31", "main.middle b.go:22", "main.outer a.go:12")
			checkFrames(t, f, 0x30, "main.outer a.go:13")
			checkFrames(t, f, 0x40, "main.leaf a.go:41")
			checkFrames(t, f, 0x50)
			checkFrames(t, f, 0x60)
			checkFrames(t, f, ^addr.Virt(0))
			start := f.LookupVirt(goText + 0x18).Frames
			if p.magic == pclntab.Go120 && (start[0].Start != 30 || start[1].Start != 20 || start[2].Start != 10) {
				t.Errorf("%+v, want the first lines 30, 20 and 10", start)
			}
		})
	}
}

// checkFrames compares the frames at a distance from the start of the code.
func checkFrames(t *testing.T, f *File, at addr.Virt, want ...string) {
	t.Helper()
	var got []string
	frames := f.LookupVirt(goText + at).Frames
	for i, frame := range frames {
		got = append(got, frame.Linkage+" "+place(frame))
		if frame.Inlined != (i < len(frames)-1) {
			t.Errorf("%v: frame %d of %d has Inlined %v", at, i, len(frames), frame.Inlined)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v is %q, want %q", at, got, want)
	}
}
