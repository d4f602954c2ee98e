package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/pclntab"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestSegments compares with readelf -l, and converts addresses there and back.
func TestSegments(t *testing.T) {
	for _, name := range realFiles(t) {
		f := open(t, name)
		var want []Segment
		for _, line := range output(t, nil, "readelf", "-lW", name) {
			// "  LOAD  0x049000 0x0000000000049000 0x0000000000049000 0x194225 0x194225 R E 0x1000"
			if w := strings.Fields(line); len(w) > 7 && w[0] == "LOAD" {
				want = append(want, Segment{
					Offset: addr.Offset(hex(t, w[1])), Virt: addr.Virt(hex(t, w[2])),
					FileSize: hex(t, w[4]), MemSize: hex(t, w[5]), Flags: segmentFlags(line),
				})
			}
		}
		got := f.Segments()
		if len(got) != len(want) {
			t.Fatalf("%s has %d segments, want %d", name, len(got), len(want))
		}
		for i, s := range got {
			if s != want[i] {
				t.Errorf("%s: segment %d is %+v, want %+v", name, i, s, want[i])
			}
			if s.FileSize == 0 {
				continue
			}
			for _, at := range []uint64{0, s.FileSize / 2, s.FileSize - 1} {
				o, ok1 := f.Offset(s.Virt + addr.Virt(at))
				v, ok2 := f.Virt(s.Offset + addr.Offset(at))
				if !ok1 || !ok2 || o != s.Offset+addr.Offset(at) || v != s.Virt+addr.Virt(at) {
					t.Errorf("%s: byte %#x of segment %d is at %v and %v", name, at, i, o, v)
				}
			}
		}
	}
}

// segmentFlags reads the flags of a line, which can be written with spaces: "R E".
func segmentFlags(line string) (flags uint32) {
	fields := strings.Fields(line)
	for _, f := range fields[6 : len(fields)-1] {
		for _, c := range f {
			flags |= map[rune]uint32{'E': 1, 'W': 2, 'R': 4}[c]
		}
	}
	return flags
}

func sym(name string, value, size uint64, typ elf.SymType, bind elf.SymBind) elf.Symbol {
	return elf.Symbol{Name: name, Info: elf.ST_INFO(bind, typ), Section: 1, Value: value, Size: size}
}

var symbols = []elf.Symbol{
	sym("first", 0x1000, 0x20, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("_alias", 0x1000, 0x20, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("ali", 0x1000, 0x20, elf.STT_FUNC, elf.STB_LOCAL),
	sym("label", 0x1010, 0, elf.STT_NOTYPE, elf.STB_LOCAL),
	// A hole from 0x1020.
	sym("outer", 0x1040, 0x40, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("inner", 0x1050, 0x10, elf.STT_NOTYPE, elf.STB_LOCAL),
	sym("overlaps", 0x1078, 0x40, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("table", 0x10c0, 0x10, elf.STT_OBJECT, elf.STB_LOCAL),
	sym("unsized", 0x10d0, 0, elf.STT_FUNC, elf.STB_LOCAL),
	sym("untyped", 0x10e0, 0, elf.STT_NOTYPE, elf.STB_GLOBAL),
	sym("$x.3", 0x10e8, 0, elf.STT_NOTYPE, elf.STB_LOCAL),
	sym(".L4", 0x10ea, 0, elf.STT_NOTYPE, elf.STB_LOCAL),
	sym("chosen", 0x10f0, 8, elf.STT_GNU_IFUNC, elf.STB_GLOBAL),
	sym("last", 0x10f8, 0x1000, elf.STT_FUNC, elf.STB_WEAK),
	sym("beyond", 0x1100, 0x10, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("before", 0xff0, 0x20, elf.STT_FUNC, elf.STB_GLOBAL),
	sym("", 0x1020, 0x20, elf.STT_FUNC, elf.STB_GLOBAL),
	{Name: "undefined", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Value: 0x1020, Size: 0x20},
	{Name: "absolute", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: elf.SHN_ABS, Value: 0x1020, Size: 0x20},
	{Name: "in data", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: 2, Value: 0x2000, Size: 0x20},
}

// program is a file with code from 0x1000 to 0x1100, at offset 0x400.
func program() elftest.File {
	return elftest.File{
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0x400, Data: make([]byte, 0x100)},
			{Name: ".data", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: 0x2000, Data: make([]byte, 0x40)},
		},
		Segments: []elftest.Segment{
			{Type: elf.PT_NOTE, From: ".data"},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text"},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, From: ".data", Memsize: 0x100},
		},
	}
}

func build(t testing.TB, p elftest.File) *File {
	t.Helper()
	f, err := NewFile(bytes.NewReader(p.Build()), "built")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSymbolRules(t *testing.T) {
	for _, form := range []struct {
		class elf.Class
		order binary.ByteOrder
	}{
		{elf.ELFCLASS32, binary.LittleEndian},
		{elf.ELFCLASS32, binary.BigEndian},
		{elf.ELFCLASS64, binary.LittleEndian},
		{elf.ELFCLASS64, binary.BigEndian},
	} {
		p := program()
		p.Class, p.Order, p.Symbols = form.class, form.order, symbols
		f := build(t, p)
		for v, want := range map[addr.Virt]string{
			0xff0: "", 0xfff: "", 0x1000: "first", 0x1010: "first", 0x101f: "first",
			0x1020: "", 0x103f: "",
			0x1040: "outer", 0x104f: "outer", 0x1050: "inner", 0x105f: "inner", 0x1060: "outer",
			0x1077: "outer", 0x1078: "overlaps", 0x107f: "overlaps", 0x10b7: "overlaps",
			0x10b8: "", 0x10c0: "", 0x10cf: "",
			0x10d0: "unsized", 0x10df: "unsized", 0x10e0: "untyped", 0x10e9: "untyped", 0x10ef: "untyped",
			0x10f0: "chosen", 0x10f8: "last", 0x10ff: "last", 0x1100: "", 0x2000: "", math.MaxUint64: "",
		} {
			if got := linkage(f, v); got != want {
				t.Errorf("%v, %v: %v is %q, want %q", form.class, form.order, v, got, want)
			}
			if o, ok := f.Offset(v); ok && !same(f.LookupOffset(o), f.LookupVirt(v)) {
				t.Errorf("offset %v is %v, and %v is %v", o, f.LookupOffset(o), v, f.LookupVirt(v))
			}
		}
	}
}

// TestDynsymHasNoNeighbours: in .dynsym a symbol does not reach to the next one,
// between them is code that is not exported.
func TestDynsymHasNoNeighbours(t *testing.T) {
	p := program()
	p.DynSymbols = symbols
	f := build(t, p)
	for v, want := range map[addr.Virt]string{0x1000: "first", 0x10d0: "", 0x10e0: "", 0x10f8: "last"} {
		got := f.LookupVirt(v)
		if linkage(f, v) != want || want != "" && got.Source != SourceDynsym || want == "" && got.Reason != reason.NoSymbol {
			t.Errorf("%v is %+v, want %q", v, got, want)
		}
	}
}

func TestThumb(t *testing.T) {
	p := program()
	p.Class, p.Machine = elf.ELFCLASS32, elf.EM_ARM
	p.Symbols = []elf.Symbol{
		sym("arm", 0x1000, 0x10, elf.STT_FUNC, elf.STB_GLOBAL),
		sym("thumb", 0x1011, 0x10, elf.STT_FUNC, elf.STB_GLOBAL),
	}
	f := build(t, p)
	for v, want := range map[addr.Virt]string{0x100f: "arm", 0x1010: "thumb", 0x101f: "thumb", 0x1020: ""} {
		if got := linkage(f, v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func TestSources(t *testing.T) {
	p := program()
	f := build(t, p)
	if got := f.LookupVirt(0x1000).Reason; got != reason.NoSymbolTable || len(f.Sources()) != 0 {
		t.Errorf("without symbols: %v, sources %v", got, f.Sources())
	}
	p.Symbols, p.DynSymbols = symbols[:1], symbols[4:5]
	f = build(t, p)
	if s := f.Sources(); len(s) != 2 || s[0] != SourceSymtab || s[1] != SourceDynsym {
		t.Errorf("sources %v", s)
	}
	if a, b := f.LookupVirt(0x1000), f.LookupVirt(0x1040); a.Source != SourceSymtab || b.Source != SourceDynsym {
		t.Errorf("%+v and %+v", a, b)
	}
}

// TestCounts puts the counts of headers where they are if they do not fit.
func TestCounts(t *testing.T) {
	p := program()
	p.Symbols = symbols
	p.Damage = func(h *elf.Header64, programs []elf.Prog64, sections []elf.Section64) {
		sections[0].Size, h.Shnum = uint64(h.Shnum), 0
		sections[0].Link, h.Shstrndx = uint32(h.Shstrndx), uint16(elf.SHN_XINDEX)
		sections[0].Info, h.Phnum = uint32(h.Phnum), 0xffff
	}
	f := build(t, p)
	if got := linkage(f, 0x1000); got != "first" || len(f.Segments()) != 2 {
		t.Errorf("got %q and segments %v", got, f.Segments())
	}
}

func TestMalformedHeaders(t *testing.T) {
	for name, damage := range map[string]func(*elf.Header64, []elf.Prog64, []elf.Section64){
		"class":                     func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Ident[elf.EI_CLASS] = 3 },
		"byte order":                func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Ident[elf.EI_DATA] = 0 },
		"sections beyond the file":  func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Shoff = 1 << 40 },
		"sections beyond any file":  func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Shoff = 1 << 63 },
		"small section headers":     func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Shentsize = 8 },
		"too many sections":         func(h *elf.Header64, _ []elf.Prog64, s []elf.Section64) { h.Shnum = 0; s[0].Size = 1 << 60 },
		"small program headers":     func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Phentsize = 8 },
		"segments beyond the file":  func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Phoff = 1 << 40 },
		"names beyond the file":     func(h *elf.Header64, _ []elf.Prog64, s []elf.Section64) { s[h.Shstrndx].Off = 1 << 40 },
		"names larger than allowed": func(h *elf.Header64, _ []elf.Prog64, s []elf.Section64) { s[h.Shstrndx].Size = 1 << 40 },
	} {
		p := program()
		p.Damage = damage
		var damaged *FormatError
		f, err := NewFile(bytes.NewReader(p.Build()), "built")
		if !errors.As(err, &damaged) || damaged.Name != "built" || f != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMalformedSymbols(t *testing.T) {
	const symtab, strtab = 3, 4 // in the order of elftest
	for name, damage := range map[string]func([]elf.Section64){
		"table beyond the file":      func(s []elf.Section64) { s[symtab].Off = 1 << 40 },
		"table larger than the file": func(s []elf.Section64) { s[symtab].Size = 1 << 28 },
		"table larger than allowed":  func(s []elf.Section64) { s[symtab].Size = 1 << 62 },
		"no such string table":       func(s []elf.Section64) { s[symtab].Link = 1000 },
		"strings beyond the file":    func(s []elf.Section64) { s[strtab].Off = 1 << 62 },
	} {
		p := program()
		p.Symbols = symbols
		p.Damage = func(_ *elf.Header64, _ []elf.Prog64, s []elf.Section64) { damage(s) }
		f := build(t, p)
		var damaged *FormatError
		if err := f.Load(); !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.LookupVirt(0x1000); got.Reason != reason.BadSymbols || got.Frames != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHostileNames gives thousands of symbols of the same address names that are
// as long as the file.
func TestHostileNames(t *testing.T) {
	var table bytes.Buffer
	for i := range uint32(20000) {
		s := elf.Sym64{Name: i, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: 0x1000, Size: 0x20}
		if err := binary.Write(&table, binary.LittleEndian, s); err != nil {
			t.Fatal(err)
		}
	}
	for name, end := range map[string]string{"ended": "\x00", "not ended": ""} {
		p := program()
		p.Sections = append(p.Sections,
			elftest.Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Data: table.Bytes(), Link: 4},
			elftest.Section{Name: ".strtab", Type: elf.SHT_STRTAB, Data: []byte(strings.Repeat("_", 500000) + end)})
		data := p.Build()
		bounded(t, len(data), func() {
			f, err := NewFile(bytes.NewReader(data), name)
			if err != nil {
				t.Fatal(err)
			}
			if got := linkage(f, 0x1000); (got == "") != (end == "") {
				t.Errorf("%s: a name of %d bytes", name, len(got))
			}
		})
	}
}

// failing reads from a file until its allowance of calls is used up.
type failing struct {
	*bytes.Reader
	calls int
}

var errBroken = errors.New("broken")

func (f *failing) ReadAt(b []byte, off int64) (int, error) {
	if f.calls--; f.calls < 0 {
		return 0, errBroken
	}
	return f.Reader.ReadAt(b, off)
}

// TestReadErrors breaks off the reading of a file at every place: it is never
// taken for damage, nor for the end of a table.
func TestReadErrors(t *testing.T) {
	p := program()
	p.Symbols, p.DynSymbols = symbols, symbols
	goFile := goProgram{magic: pclntab.Go118, ptr: 8, order: binary.LittleEndian}
	for _, data := range [][]byte{p.Build(), goFile.build()} {
		for calls := 0; ; calls++ {
			f, err := NewFile(&failing{bytes.NewReader(data), calls}, "built")
			if err == nil {
				err = f.Load()
			}
			if err == nil && calls > 5 {
				break
			}
			var damaged *FormatError
			if !errors.Is(err, errBroken) || errors.As(err, &damaged) {
				t.Fatalf("after %d reads: %v", calls, err)
			}
		}
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	text, fifo := filepath.Join(dir, "text"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{text, fifo, dir, os.DevNull, testenv.Trap(t, filepath.Join(dir, "trap"))} {
		if f, err := OpenFile(name); !errors.Is(err, ErrNotELF) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		if x, err := OpenIndex(name); !errors.Is(err, ErrNotIndex) {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
	if f, err := OpenFile(filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f, err)
	}
}

const cSource = `
static __attribute__((noinline)) int hidden(int n) { return n * n; }
int visible(int n) { return hidden(n) + 1; }
int main(void) { return visible(3); }
`

// compile compiles the source with gcc and these arguments.
func compile(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "source.c"), filepath.Join(dir, "compiled")
	if err := os.WriteFile(in, []byte(cSource), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", append(args, "-o", out, in)...)
	return out
}

func run(t *testing.T, tool string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, tool), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", tool, err, out)
	}
}

// separate moves the symbols of a file to a debug file and returns its name.
func separate(t *testing.T, name string) string {
	t.Helper()
	debug := name + ".debug"
	run(t, "objcopy", "--only-keep-debug", name, debug)
	run(t, "strip", "--strip-all", name)
	return debug
}

func TestJoin(t *testing.T) {
	name := compile(t, "-g")
	full := readelf(t, name)
	debugName := separate(t, name)
	f, debug := open(t, name), open(t, debugName)
	joined := Join(f, debug)
	found, lines := 0, 0
	for _, s := range full.symbols {
		if s.typ != "FUNC" || s.size == 0 {
			continue
		}
		found++
		if got := joined.LookupVirt(addr.Virt(s.value)); got.Source == SourceDWARF && got.Frames[0].Line > 0 {
			lines++
		}
		o, ok := joined.Offset(addr.Virt(s.value))
		if got := joined.LookupOffset(o); !ok || got.Source > SourceSymtab || linkage(joined, addr.Virt(s.value)) != s.name {
			t.Errorf("%s: %+v", s.name, got)
		}
		if got := f.LookupVirt(addr.Virt(s.value)); got.Frames != nil {
			t.Errorf("%s: %+v without the debug file", s.name, got)
		}
		if got := debug.LookupOffset(o); got.Reason != reason.DebugFileAlone {
			t.Errorf("%s: %+v from the debug file alone, by offset", s.name, got)
		}
		if linkage(debug, addr.Virt(s.value)) != s.name {
			t.Errorf("%s: %+v from the debug file alone", s.name, debug.LookupVirt(addr.Virt(s.value)))
		}
	}
	if found < 3 || lines != 3 {
		t.Errorf("%d functions, %d of them with a line", found, lines)
	}
	if err := joined.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is not closed: %v", err)
	}
}

// TestRelocatable looks up functions of an object file, whose sections have no
// addresses, by file offset, and by virtual address in its debug file.
func TestRelocatable(t *testing.T) {
	name := compile(t, "-c", "-g", "-ffunction-sections")
	f, facts := open(t, name), readelf(t, name)
	offsets := map[string]uint64{}
	for _, line := range output(t, nil, "readelf", "-SW", name) {
		index, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "["), "]")
		if w := strings.Fields(rest); ok && len(w) > 4 && w[1] == "PROGBITS" {
			offsets[strings.TrimSpace(index)] = hex(t, w[3])
		}
	}
	run(t, "objcopy", "--only-keep-debug", name, name+".debug")
	debug := open(t, name+".debug")
	found := 0
	for _, s := range facts.symbols {
		if s.typ != "FUNC" {
			continue
		}
		found++
		for _, at := range []uint64{0, s.size - 1} {
			o := addr.Offset(offsets[s.ndx] + s.value + at)
			v, ok := f.Virt(o)
			if !ok || linkage(f, v) != s.name || linkage(debug, v) != s.name || !same(f.LookupOffset(o), f.LookupVirt(v)) {
				t.Errorf("%s: offset %v is %v with %+v, and to the debug file %+v", s.name, o, v, f.LookupOffset(o), debug.LookupVirt(v))
			}
		}
	}
	if found != 3 {
		t.Errorf("%d functions", found)
	}
}

// TestEveryFile loads the tables of the ELF files of the machine, of some unless all
// are asked for: none of them is malformed, and where a Go program has inlined calls they are
// known.
func TestEveryFile(t *testing.T) {
	if testenv.Brief() {
		return // one after the other
	}
	trees := []string{"/usr/lib", "/usr/bin", "/usr/local/go/bin"}
	if testenv.Thorough() {
		trees = testenv.ELFTrees
	}
	files := testenv.ELFFiles(t, trees...)
	tables := map[Source]int{}
	for i, name := range files {
		if i%16 != 0 && !testenv.Thorough() {
			continue
		}
		f, err := OpenFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, s := range f.sources {
			tables[s.kind]++
			table, err := s.load()
			if err != nil {
				t.Error(err)
			}
			if p, ok := table.(*goTable); ok && err == nil {
				if first, last := p.treeBounds(); first <= last && p.trees.data == "" {
					t.Errorf("%s: no inlined calls", name)
				}
			}
		}
		f.Close()
	}
	t.Logf("%d files: %v", len(files), tables)
}

// TestManySections looks up functions in more sections than an entry of a symbol table
// can number.
func TestManySections(t *testing.T) {
	if testenv.Brief() {
		return // it is about one table
	}
	dir := t.TempDir()
	testenv.Tool(t, "gcc")
	source := `.altmacro
.macro function n
.section .text.f\n,"ax",@progbits
.type f\n,@function
f\n: ret
.size f\n,1
.endm
.set number, 0
.rept 66000
function %number
.set number, number+1
.endr
.set absolute, 0xffef
`
	if err := os.WriteFile(filepath.Join(dir, "many.s"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "gcc -c many.s -o many.o")
	name := filepath.Join(dir, "many.o")
	f, x := open(t, name), index(t, name)
	places := map[string]uint64{} // offset of each section in the file
	for _, line := range output(t, nil, "readelf", "-SW", name) {
		// "  [    4] .text.f0  PROGBITS  0000000000000000 000040 000001 00  AX  0   0  1"
		if _, rest, ok := strings.Cut(line, "] .text.f"); ok {
			w := strings.Fields(rest)
			places["f"+w[0]] = hex(t, w[3])
		}
	}
	found := 0
	for _, line := range output(t, nil, "readelf", "-sW", name) {
		s, ok := parseReadelfSymbol(t, line)
		if !ok || s.typ != "FUNC" {
			continue
		}
		if found++; found%997 != 0 && found < 65990 {
			continue
		}
		o := addr.Offset(places[s.name])
		for _, table := range []Table{f, x} {
			if got := table.LookupOffset(o); len(got.Frames) != 1 || got.Frames[0].Linkage != s.name {
				t.Fatalf("offset %v is %+v, want %s", o, got, s.name)
			}
		}
	}
	if found != 66000 {
		t.Errorf("%d functions", found)
	}
}
