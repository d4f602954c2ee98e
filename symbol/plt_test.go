package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
	"hallmark/internal/testenv"
)

// pltSource calls functions that the dynamic linker finds; the address of one is
// taken too, and one has a mangled name.
const pltSource = `
extern int alpha(int), beta(int), mangled(int) __asm__("_ZN3foo3barEi");
int (*pointer(void))(int) { return alpha; }
static int chosen(int n) { return n + 1; }
static int (*choose(void))(int) { return chosen; }
int indirect(int) __attribute__((ifunc("choose"), visibility("hidden")));
int caller(int n) { return mangled(n) + beta(n + 1) * alpha(n + 2) + indirect(n); }
#ifdef MAIN
int alpha(int n) { return n; }
int beta(int n) { return n; }
int mangled(int n) { return n; }
int main(void) { return caller(1); }
#endif
`

// pltBuilds are the forms of procedure linkage tables that linkers make of pltSource,
// in the file SRC.
var pltBuilds = []struct {
	name    string
	tools   []string
	objdump string
	sh      string
	entries int // names ending in @plt that there must be at least
}{
	{"lazy", gcc, "objdump", "gcc -O1 -shared -fPIC -Wl,-z,lazy $SRC -o prog", 4},
	{"at once", gcc, "objdump", "gcc -O1 -shared -fPIC -Wl,-z,now $SRC -o prog", 4},
	{"indirect branch tracking", gcc, "objdump", "gcc -O1 -shared -fPIC -fcf-protection -Wl,-z,ibtplt,-z,lazy $SRC -o prog", 4},
	{"indirect branch tracking, at once", gcc, "objdump", "gcc -O1 -shared -fPIC -fcf-protection -Wl,-z,ibtplt,-z,now $SRC -o prog", 4},
	{"static", gcc, "objdump", "gcc -O1 -static -DMAIN $SRC -o prog", 10},
	{"static, stripped", gcc, "objdump", "gcc -O1 -static -s -DMAIN $SRC -o prog", 0},
	{"gold", []string{"gcc", "ld.gold"}, "objdump", "gcc -O1 -shared -fPIC -fuse-ld=gold $SRC -o prog", 4},
	{"mold, stripped", []string{"gcc", "mold"}, "objdump", "gcc -O1 -shared -fPIC -s -fuse-ld=mold $SRC -o prog", 4}, // it has symbols for entries
	{"lld", lld, "objdump", "clang-19 -O1 -shared -fPIC -fuse-ld=lld $SRC -o prog", 4},
	{"lld, indirect branch tracking", lld, "objdump", "clang-19 -O1 -shared -fPIC -fuse-ld=lld -fcf-protection -Wl,-z,force-ibt $SRC -o prog", 4},
	{"i386, position-independent", gcc, "objdump", "gcc -m32 -O1 -shared -fPIC -nostdlib $SRC -o prog", 4},
	{"i386, indirect branch tracking", gcc, "objdump", "gcc -m32 -O1 -shared -fPIC -nostdlib -fcf-protection -Wl,-z,ibtplt $SRC -o prog", 4},
	{"i386, at a fixed address", lld, "llvm-objdump-19", "clang-19 -m32 -O1 -shared -fPIC -nostdlib -fuse-ld=lld -DMAIN $SRC -o lib.so && clang-19 -m32 -no-pie -fno-pic -O1 -nostdlib -fuse-ld=lld -Wl,-e,caller $SRC lib.so -o prog", 3},
	{"aarch64", lld, "llvm-objdump-19", "clang-19 --target=aarch64-linux-gnu -O1 -shared -fPIC -nostdlib -fuse-ld=lld $SRC -o prog", 3},
	{"aarch64, branch targets", lld, "llvm-objdump-19", "clang-19 --target=aarch64-linux-gnu -O1 -shared -fPIC -nostdlib -fuse-ld=lld -mbranch-protection=standard -Wl,-z,force-bti $SRC -o prog", 3},
	{"aarch64, signed", lld, "llvm-objdump-19", "clang-19 --target=aarch64-linux-gnu -O1 -shared -fPIC -nostdlib -fuse-ld=lld -mbranch-protection=standard -Wl,-z,force-bti,-z,pac-plt $SRC -o prog", 3},
}

var lld = []string{"clang-19", "ld.lld-19", "llvm-objdump-19"}

// TestPLTForms compares the tables that linkers make with what objdump calls them.
func TestPLTForms(t *testing.T) {
	src := filepath.Join(t.TempDir(), "source.c")
	if err := os.WriteFile(src, []byte(pltSource), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, b := range pltBuilds {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, tool := range b.tools {
				testenv.Tool(t, tool)
			}
			dir := t.TempDir()
			shell(t, dir, b.sh, "SRC="+src)
			named := comparePLT(t, filepath.Join(dir, "prog"), b.objdump)
			if len(named) < b.entries {
				t.Errorf("only %q have names", slices.Sorted(maps.Keys(named)))
			}
			t.Log(slices.Sorted(maps.Keys(named)))
		})
	}
}

// TestPLTOfRealFiles compares libraries and programs with objdump.
func TestPLTOfRealFiles(t *testing.T) {
	for _, name := range realFiles(t) {
		if strings.HasSuffix(name, ".debug") || len(symtab.PLTSections(open(t, name).image)) == 0 {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			comparePLT(t, name, "objdump")
		})
	}
}

// comparePLT compares all instructions of the procedure linkage tables of a file with
// objdump, and with an index. It returns the names. The differences are:
//
//   - What goes to a function that is chosen when the program starts is *ABS*+ADDRESS
//     to objdump; here it has the name of the function at this address that chooses.
//   - objdump does not name the entries of static programs, and of lld's and mold's some; what
//     readelf says of the slot decides.
//   - objdump calls by the entry before what comes between the last one and the end,
//     which is there for variables of threads (TLSDESC).
func comparePLT(t *testing.T, name, objdump string) map[string]bool {
	t.Helper()
	f, facts, x, named := open(t, name), readelf(t, name), index(t, name), map[string]bool{}
	slots := relocatedSlots(t, name)
	for _, e := range objdumpPLT(t, name, objdump) {
		got := linkage(f, e.at)
		if fromIndex := x.LookupVirt(e.at); !reflect.DeepEqual(fromIndex, f.LookupVirt(e.at)) {
			t.Fatalf("%v is %+v, and %+v in the index", e.at, f.LookupVirt(e.at), fromIndex)
		}
		if e.name == "" {
			e.name = slots[e.slot]
		}
		chooser, chosen := strings.CutPrefix(strings.TrimSuffix(e.name, symtab.PLTSuffix), "*ABS*")
		switch {
		case got == e.name, e.name == "" && e.slot == 0:
		case chosen && (got == "" || facts.hasIFUNC(strings.TrimSuffix(got, symtab.PLTSuffix), chooser)):
		case got == "" && e.thread:
		default:
			t.Errorf("%v is %q, and %q to objdump", e.at, got, e.name)
		}
		if strings.HasSuffix(got, symtab.PLTSuffix) {
			named[got] = true
		}
	}
	return named
}

// hasIFUNC reports whether there is such a symbol, at "+0xADDRESS" if that is known.
func (f *readelfFacts) hasIFUNC(name, at string) bool {
	return slices.ContainsFunc(f.symbols, func(s readelfSymbol) bool {
		return strings.Contains(s.typ, "IFUNC") && s.name == name && (at == "" || at == fmt.Sprintf("+%#x", s.value))
	})
}

// relocatedSlots returns what readelf says of relocations, in objdump's words.
func relocatedSlots(t testing.TB, name string) map[uint64]string {
	t.Helper()
	slots := map[uint64]string{}
	for _, line := range output(t, nil, "readelf", "-rW", name) {
		// "00000000004c8018  0000000000000025 R_X86_64_IRELATIVE  40c7e0"
		w := strings.Fields(line)
		switch {
		case len(w) < 4:
		case strings.Contains(w[2], "IRELATIV"):
			slots[hex(t, w[0])] = "*ABS*+0x" + w[3] + symtab.PLTSuffix
		case (strings.HasSuffix(w[2], "SLOT") || strings.HasSuffix(w[2], "GLOB_DAT")) && len(w) > 4:
			function, _, _ := strings.Cut(w[4], "@")
			slots[hex(t, w[0])] = function + symtab.PLTSuffix
		}
	}
	return slots
}

// pltInstruction is an instruction of a procedure linkage table.
type pltInstruction struct {
	at     addr.Virt
	name   string // "" where objdump has none
	slot   uint64 // that it jumps through, 0 for none
	thread bool   // it is for variables of threads
}

// objdumpPLT returns what objdump says of procedure linkage tables.
func objdumpPLT(t testing.TB, name, objdump string) (all []pltInstruction) {
	t.Helper()
	label, started, thread := "", false, false
	for _, line := range output(t, nil, objdump, "-d", "-j.plt", "-j.plt.sec", "-j.plt.got", "-j.iplt", name) {
		// "0000000000049030 <chmod@plt>:", then "   49030:\tff 25 ca 6f 35 00 \tjmp …"
		if _, rest, ok := strings.Cut(line, " <"); ok && strings.HasSuffix(rest, ">:") && line[0] != ' ' {
			label, started, thread = strings.TrimSuffix(rest, ">:"), true, false
			if strings.HasPrefix(label, ".") || strings.Contains(label, "@plt-0x") {
				label = "" // what all entries share, or nothing is known
			}
			continue
		}
		at, code, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || !started || strings.Contains(at, " ") {
			continue
		}
		thread = thread || label != "" && strings.Contains(code, "ff 35") || // behind the entry, and behind a mark
			label != "" && strings.Contains(code, "endbr64") && len(all) > 0 && all[len(all)-1].name == label
		e := pltInstruction{at: addr.Virt(hex(t, at)), name: label, thread: thread}
		if _, comment, ok := strings.Cut(code, "# "); ok && strings.Contains(code, "jmp") && label == "" {
			comment, _, _ = strings.Cut(comment, " ")
			e.slot = hex(t, comment)
		}
		all = append(all, e)
	}
	return all
}

// TestPLTRules has relocations that say nothing, and code that no relocation is for.
func TestPLTRules(t *testing.T) {
	f := build(t, pltProgram())
	for v, want := range map[addr.Virt]string{
		0x1000: "",          // through a slot that is not relocated
		0x1010: "puts@plt",  // by JUMP_SLOT
		0x101f: "puts@plt",  // all of the entry
		0x1020: "",          // other code
		0x1030: "again@plt", // by GLOB_DAT, behind endbr64
		0x1040: "",          // the end of the table
	} {
		if got := linkage(f, v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
		if got := linkage(mustIndexFile(t, f), v); got != want {
			t.Errorf("%v is %q in the index, want %q", v, got, want)
		}
	}
	if got := f.LookupVirt(0x1010); got.Source != SourcePLT {
		t.Errorf("from %v", got.Source)
	}
	if got := f.LookupOffsets([]addr.Offset{0x400 + 0x10, 0x400 + 0x20}); got[0].Source != SourcePLT || got[1].Frames != nil {
		t.Errorf("%+v", got)
	}
}

// pltProgram is a file with a procedure linkage table from 0x1000 to 0x1040, whose
// slots are from 0x3000 on.
func pltProgram() elftest.File {
	p := program()
	jump := func(off int, code string, slot byte) {
		next := 0x1000 + off + len(code)
		copy(p.Sections[0].Data[off:], code[:len(code)-4])
		put32(p.Sections[0].Data[off+len(code)-4:], uint32(0x3000+int(slot)*8-next))
	}
	p.Sections[0].Name, p.Segments[1].From = ".plt", ".plt"
	p.Sections[0].Data = bytes.Repeat([]byte{0x90}, 0x40)
	jump(0x00, "\xff\x25\x00\x00\x00\x00", 0)
	jump(0x10, "\xff\x25\x00\x00\x00\x00", 1)
	jump(0x30, "\xf3\x0f\x1e\xfa\xf2\xff\x25\x00\x00\x00\x00", 2)
	var rela []byte
	for _, r := range [][3]uint64{
		{0x3000, 1<<32 | 1, 0},  // R_X86_64_64
		{0x3008, 1<<32 | 7, 0},  // R_X86_64_JUMP_SLOT
		{0x3010, 2<<32 | 6, 0},  // R_X86_64_GLOB_DAT
		{0x3010, 99<<32 | 6, 0}, // a second one
	} {
		for _, word := range r {
			rela = goProgram{ptr: 8, order: binary.LittleEndian}.word(rela, word)
		}
	}
	p.Sections = append(p.Sections, elftest.Section{
		Name: ".rela.plt", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Addr: 0x4000, Data: rela, Link: 4, Entsize: 24})
	p.DynSymbols = []elf.Symbol{
		{Name: "puts@GLIBC_2.2.5", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)},
		{Name: "again", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)},
	}
	return p
}

// FuzzPLT takes any code and any relocations, on each machine.
func FuzzPLT(f *testing.F) {
	p := pltProgram()
	for machine := range uint8(3) {
		f.Add(p.Sections[0].Data, p.Sections[2].Data, machine)
	}
	f.Add([]byte("\x10\x00\x00\x90\x11\x0a\x40\xf9\x10\x42\x00\x91\x20\x02\x1f\xd6"), p.Sections[2].Data, uint8(2))
	f.Fuzz(func(t *testing.T, code, rela []byte, machine uint8) {
		p := pltProgram()
		p.Sections[0].Data, p.Sections[2].Data = code, rela
		p.Machine = []elf.Machine{elf.EM_X86_64, elf.EM_386, elf.EM_AARCH64}[machine%3]
		if p.Machine == elf.EM_386 {
			p.Class = elf.ELFCLASS32
		}
		data := p.Build()
		bounded(t, len(data), func() {
			file := build(t, p)
			table, err := symtab.LoadPLT(file.image, nil)
			if err != nil {
				return
			}
			assertDisjoint(t, &table.Ranges)
			for i := range table.Ranges.Starts {
				if !strings.HasSuffix(table.Name(i), symtab.PLTSuffix) {
					t.Errorf("an entry is %q", table.Name(i))
				}
			}
		})
	})
}

func assertDisjoint(t testing.TB, r *ranges.List) {
	t.Helper()
	for i := range r.Starts {
		if r.Sizes[i] == 0 || i > 0 && r.Starts[i-1]+uint64(r.Sizes[i-1]) > r.Starts[i] {
			t.Fatalf("range %d (%#x, %#x bytes) is empty or overlaps the one before", i, r.Starts[i], r.Sizes[i])
		}
	}
}
