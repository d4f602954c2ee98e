package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/symtab"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// addMiniDebug adds .gnu_debugdata to the stripped file prog, from its debug file
// DEBUG, as add_minidebug of debugedit's find-debuginfo does.
const addMiniDebug = `
nm -D prog --format=posix --defined-only | awk '{ print $1 }' | sed 's/@.*//' | sort >dynsyms
nm $DEBUG --format=sysv --defined-only | awk -F \| '{ if ($4 ~ "FUNC") print $1 }' | sed 's/@.*//' | sort >funcsyms
comm -13 dynsyms funcsyms >keep
objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=keep $DEBUG mini
xz $XZ mini
objcopy --add-section .gnu_debugdata=mini.xz prog`

// miniDebug returns a copy of a stripped file that has .gnu_debugdata.
func miniDebug(t testing.TB, name, debug string, options ...string) string {
	t.Helper()
	for _, tool := range []string{"nm", "objcopy", "xz"} {
		testenv.Tool(t, tool)
	}
	dir := t.TempDir()
	c := exec.Command("sh", "-ec", "cp "+name+" prog"+addMiniDebug)
	c.Dir = dir
	c.Env = append(c.Environ(), "LC_ALL=C", "DEBUG="+debug, "XZ="+strings.Join(options, " "))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "prog")
}

// TestMiniDebug compares libraries that have .gnu_debugdata with what readelf prints of
// their debug files, and with eu-addr2line.
func TestMiniDebug(t *testing.T) {
	found := 0
	for _, stripped := range realFiles(t) {
		debug := debugFile(t, stripped)
		if debug == "" || strings.HasSuffix(stripped, ".debug") {
			continue
		}
		found++
		t.Run(filepath.Base(stripped), func(t *testing.T) {
			t.Parallel()
			name := miniDebug(t, stripped, debug)
			f, facts := open(t, name), readelf(t, debug)
			facts.onlyFunctions()
			addresses := textAddresses(t, facts, 5000)
			elfutils, x, sources := elfutilsNames(t, name, addresses), index(t, name), map[Source]int{}
			for i, v := range addresses {
				got := f.LookupVirt(v)
				if fromIndex := x.LookupVirt(v); !reflect.DeepEqual(fromIndex, got) {
					t.Fatalf("%v is %+v, and %+v in the index", v, got, fromIndex)
				}
				sources[got.Source]++
				if got.Source == SourcePLT {
					continue // not known to the witnesses
				}
				is, want := linkage(f, v), facts.namesAt(uint64(v))
				if !slices.Contains(want, is) && (is != "" || len(want) != 0) {
					t.Errorf("%v is %q, want one of %q", v, is, want)
				}
				if facts.difference(v, is, elfutils[i]) == "other" {
					t.Errorf("%v is %q, and %q to eu-addr2line", v, is, elfutils[i])
				}
			}
			if sources[SourceMiniDebug] == 0 || sources[SourceDynsym] == 0 {
				t.Errorf("answers come from %v", sources)
			}
			t.Log(sources)
		})
	}
	testenv.Need(t, found > 0, "libc6-dbg")
}

// onlyFunctions leaves the symbols that find-debuginfo puts into .gnu_debugdata, or
// that are in .dynsym.
func (f *readelfFacts) onlyFunctions() {
	for section, symbols := range f.code {
		f.code[section] = slices.DeleteFunc(symbols, func(s readelfSymbol) bool { return !strings.HasSuffix(s.typ, "FUNC") })
	}
}

// TestMiniDebugForms reads what the forms of xz make of the same symbols.
func TestMiniDebugForms(t *testing.T) {
	name := compile(t, "-g")
	debug := separate(t, name)
	hidden := addr.Virt(symbolNamed(t, readelf(t, debug), "hidden").value)
	for _, options := range []string{"-9e", "--check=sha256", "--x86 --lzma2", "--block-size=1000"} {
		f := open(t, miniDebug(t, name, debug, options))
		got := f.LookupVirt(hidden)
		if err := f.Load(); err != nil || got.Source != SourceMiniDebug || got.Frames[0].Linkage != "hidden" {
			t.Errorf("xz %s: %+v, %v", options, got, err)
		}
	}
}

func symbolNamed(t *testing.T, facts *readelfFacts, name string) readelfSymbol {
	t.Helper()
	i := slices.IndexFunc(facts.symbols, func(s readelfSymbol) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("no symbol %s", name)
	}
	return facts.symbols[i]
}

// withMiniDebug is a program whose .gnu_debugdata is packed; it has one symbol in
// .dynsym, outer.
func withMiniDebug(packed []byte) elftest.File {
	p := program()
	p.Sections = append(p.Sections, elftest.Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: packed})
	p.DynSymbols = []elf.Symbol{sym("outer", 0x1040, 0x40, elf.STT_FUNC, elf.STB_GLOBAL)}
	return p
}

// packed compresses with xz.
func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	c := exec.Command(testenv.Tool(t, "xz"), "-c")
	c.Stdin = bytes.NewReader(data)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMiniDebugRules settles symbols of both tables.
func TestMiniDebugRules(t *testing.T) {
	inner := program()
	inner.Symbols = []elf.Symbol{
		sym("alias", 0x1040, 0x40, elf.STT_FUNC, elf.STB_LOCAL),     // as good as outer, but local
		sym("inner", 0x1050, 0x10, elf.STT_FUNC, elf.STB_LOCAL),     // within outer
		sym("unsized", 0x1030, 0, elf.STT_FUNC, elf.STB_LOCAL),      // up to outer
		sym("last", 0x1090, 0x10, elf.STT_FUNC, elf.STB_LOCAL),      // in no other
		sym("elsewhere", 0x3000, 0x10, elf.STT_FUNC, elf.STB_LOCAL), // where only the inner file has code
	}
	inner.Sections = append(inner.Sections, elftest.Section{
		Name: ".more", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x3000, Data: make([]byte, 0x100)})
	inner.Symbols[len(inner.Symbols)-1].Section = 3
	f := build(t, withMiniDebug(packed(t, inner.Build())))
	x := mustIndexFile(t, f)
	for v, want := range map[addr.Virt]string{
		0x102f: "", 0x1030: "unsized", 0x103f: "unsized", 0x1040: "outer", 0x104f: "outer", 0x1050: "inner",
		0x105f: "inner", 0x1060: "outer", 0x1080: "", 0x1090: "last", 0x10a0: "", 0x3000: "",
	} {
		if got := linkage(f, v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
		if got := linkage(x, v); got != want {
			t.Errorf("%v is %q in the index, want %q", v, got, want)
		}
		source := map[string]Source{"": SourceUnknown, "outer": SourceDynsym}
		kind, ok := source[want]
		if !ok {
			kind = SourceMiniDebug
		}
		if got := f.LookupVirt(v).Source; got != kind {
			t.Errorf("%v is from %v", v, got)
		}
	}
}

func mustIndexFile(t testing.TB, f *File) *Index {
	t.Helper()
	x, err := f.Index(IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestDamagedMiniDebug expects an error, and the answers of the other tables.
func TestDamagedMiniDebug(t *testing.T) {
	inner := program()
	inner.Symbols = symbols
	sound := packed(t, inner.Build())
	flipped := bytes.Clone(sound)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{
		"cut":            sound[:len(sound)/2],
		"flipped":        flipped,
		"not compressed": inner.Build(),
		"no ELF file":    packed(t, []byte("something else")),
		"a bomb":         packed(t, make([]byte, 16<<20)),
	} {
		f := build(t, withMiniDebug(data))
		err := f.Load()
		var damaged *FormatError
		if !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
		if got := linkage(f, 0x1040); got != "outer" {
			t.Errorf("%s: .dynsym says %q", name, got)
		}
		if got := f.LookupVirt(0x1000); got.Reason != reason.BadSymbols {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzMiniDebug puts a file into .gnu_debugdata, compressed or as it is.
func FuzzMiniDebug(f *testing.F) {
	inner := program()
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		inner.Order, inner.Symbols = order, symbols
		f.Add(packed(f, inner.Build()))
	}
	f.Add(packed(f, make([]byte, 2<<20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			file := build(t, withMiniDebug(data))
			for _, s := range file.sources {
				if table, err := s.load(); err == nil {
					assertDisjoint(t, &table.(*symtab.Table).Ranges)
				}
			}
			for v := addr.Virt(0xff0); v < 0x1110; v += 8 {
				checkResult(t, file.LookupVirt(v))
			}
		})
	})
}
