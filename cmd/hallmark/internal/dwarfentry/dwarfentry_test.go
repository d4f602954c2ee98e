package dwarfentry_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"hallmark/cmd/hallmark/internal/dwarfentry"
	"hallmark/internal/dwarf"
	"hallmark/internal/testenv"
	"hallmark/symbol"
)

const source = `#include <stdlib.h>
static volatile char wide[200];
int table[3][5];
static inline __attribute__((always_inline)) int inner(int p) {
	int q[4] = {p, 1, 2, 3};
	for (volatile int i = 0; i < 3; i++)
		q[i]++;
	return q[p & 3];
}
__attribute__((noinline)) int work(int n) {
	long kept[2] = {n, rand()};
	return inner(kept[n & 1]) + wide[n] + table[0][n];
}
int main(int argc, char **argv) {
	return work(argc);
}
`

// compile compiles the source and returns the path of the program.
func compile(t testing.TB, compiler string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(in, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(testenv.Tool(t, compiler), append(args, "-g", "-o", out, in)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %s", compiler, args, text)
	}
	return out
}

// open calls use with the entries of a program.
func open(t *testing.T, name string, use func(*dwarfentry.File)) {
	t.Helper()
	file, err := symbol.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.Companion = func(c symbol.Companion) *symbol.File {
		split, err := symbol.OpenFile(c.Path)
		if err != nil {
			return nil
		}
		return split
	}
	err = file.WithDebug(func(s symbol.DebugSections) error {
		use(dwarfentry.New(dwarfentry.Sections{Data: s.Data, Loc: s.Loc, Loclists: s.Loclists}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addresses returns the addresses of the symbols of a program.
func addresses(t *testing.T, name string) map[string]uint64 {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]uint64{}
	for _, s := range symbols {
		found[s.Name] = s.Value
	}
	return found
}

var builds = [][]string{
	{"gcc"}, {"gcc", "-O2"}, {"gcc", "-gdwarf-4", "-O1"}, {"gcc", "-gdwarf-2"}, {"gcc", "-gdwarf64", "-O1"},
	{"clang-19"}, {"clang-19", "-O2"}, {"clang-19", "-gdwarf-4"}, {"clang-19", "-gsplit-dwarf"}, {"gcc", "-gsplit-dwarf", "-gdwarf-4"},
}

// TestData has compilers write all forms of DWARF, and asks for where data is declared.
func TestData(t *testing.T) {
	for _, b := range builds {
		name := compile(t, b[0], b[1:]...)
		symbols := addresses(t, name)
		open(t, name, func(f *dwarfentry.File) {
			for _, c := range []struct {
				at   uint64
				line uint64
			}{{symbols["wide"], 2}, {symbols["wide"] + 199, 2}, {symbols["table"], 3}, {symbols["table"] + 59, 3}, {symbols["work"], 0}, {0, 0}} {
				d, ok := f.Data(c.at)
				if d.Line != c.line || ok != (c.line > 0) || ok && d.Path.Base() != "prog.c" {
					t.Errorf("%v: data at %#x is declared at %s:%d, want line %d", b, c.at, d.Path.Base(), d.Line, c.line)
				}
			}
		})
	}
}

// TestLocals asks for the variables of a function.
func TestLocals(t *testing.T) {
	for _, b := range builds {
		name := compile(t, b[0], b[1:]...)
		symbols := addresses(t, name)
		open(t, name, func(f *dwarfentry.File) {
			locals := f.Locals(symbols["work"])
			sizes := map[string]uint64{"n": 4, "kept": 16, "p": 4, "q": 16, "i": 4}
			lines := map[string]uint64{"n": 10, "kept": 11, "p": 4, "q": 5, "i": 6}
			for _, l := range locals {
				function := "inner"
				if l.Name == "n" || l.Name == "kept" {
					function = "work"
				}
				if l.Function != function || l.Size != sizes[l.Name] || l.Line != lines[l.Name] || l.Path.Base() != "prog.c" {
					t.Errorf("%v: %+v", b, l)
				}
				delete(sizes, l.Name)
			}
			if len(sizes) > 0 {
				t.Errorf("%v: variables %v are missing", b, sizes)
			}
			if locals := f.Locals(symbols["wide"]); locals != nil {
				t.Errorf("%v: data has variables %+v", b, locals)
			}
		})
	}
}

// TestStart asks for where functions start.
func TestStart(t *testing.T) {
	for _, b := range builds {
		name := compile(t, b[0], b[1:]...)
		symbols := addresses(t, name)
		open(t, name, func(f *dwarfentry.File) {
			frames := f.Frames(symbols["work"])
			if len(frames) == 0 {
				t.Fatalf("%v: no frames", b)
			}
			last := frames[len(frames)-1]
			if last.StartPath.Base() != "prog.c" || last.StartLine != 10 || !last.HasStart || last.Start != symbols["work"] {
				t.Errorf("%v: %+v", b, last)
			}
		})
	}
}

// TestHostile has small sections that describe very much: questions end soon.
func TestHostile(t *testing.T) {
	const n = 1 << 20
	flags := bytes.Repeat([]byte{0x3f, 0x19}, 250) // 250 attributes that take no bytes
	abbrev := append(append([]byte{1, 0x34, 1}, flags...), 0, 0, 0)
	header := []byte{0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8}
	info := append(slices.Clone(header), bytes.Repeat([]byte{1}, n)...)
	binary.LittleEndian.PutUint32(info, uint32(len(info)-4))
	var units []byte // each with abbreviations of its own that start in those of the one before
	for i := range n / 12 {
		u := append(slices.Clone(header), 1)
		u[0], u[6], u[7], u[8] = 8, byte(i), byte(i>>8), byte(i>>16)
		units = append(units, u...)
	}
	overlapping := append(bytes.Repeat([]byte{1, 0x11, 0, 0x3f, 0x19, 0, 0}, n/7), 0)
	ranges := make([]byte, 16*1000) // a list that all share
	for i := range 999 {
		binary.LittleEndian.PutUint64(ranges[16*i:], uint64(i+1))
		binary.LittleEndian.PutUint64(ranges[16*i+8:], uint64(i+2))
	}
	shared := append(slices.Clone(header), bytes.Repeat([]byte{1, 0, 0, 0, 0}, n/5)...)
	binary.LittleEndian.PutUint32(shared, uint32(len(shared)-4))
	ask := func(d dwarf.Data) {
		d.AddrSize = 8
		f := dwarfentry.New(dwarfentry.Sections{Data: &d})
		for v := range uint64(3) {
			f.Frames(5000 + v)
			f.Data(v)
			f.Locals(5000 + v)
		}
	}
	sound := dwarf.Data{Info: info, Abbrev: []byte{1, 0x34, 1, 0x3f, 0x19, 0, 0, 0}} // as many variables, of one attribute
	y := testenv.Yardstick{Times: 20, Harmless: func() { ask(sound) }}
	for i, d := range []dwarf.Data{
		{Info: info, Abbrev: abbrev},
		{Info: units, Abbrev: overlapping},
		{Info: shared, Abbrev: []byte{1, 0x2e, 1, 0x55, 0x17, 0, 0, 0}, Ranges: ranges},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask(d)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
			t.Errorf("case %d takes %d MB", i, used>>20)
		}
		y.Check(t, fmt.Sprint("case ", i), func() { ask(d) })
	}
}

// FuzzEntries changes sections at random: questions must be answered, in time.
func FuzzEntries(f *testing.F) {
	if _, err := exec.LookPath("gcc"); err == nil {
		for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
			e, err := elf.Open(compile(f, "gcc", "-O1", version))
			if err != nil {
				f.Fatal(err)
			}
			get := func(name string) []byte {
				if s := e.Section(name); s != nil {
					data, _ := s.Data()
					return data
				}
				return nil
			}
			f.Add(get(".debug_info"), get(".debug_abbrev"), get(".debug_line"), get(".debug_str"), append(get(".debug_loclists"), get(".debug_loc")...),
				append(get(".debug_rnglists"), get(".debug_ranges")...), uint64(0x1150))
			e.Close()
		}
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, lists, ranges []byte, v uint64) {
		d := &dwarf.Data{AddrSize: 8, Info: info, Abbrev: abbrev, Line: line, Str: str, LineStr: str, StrOffsets: lists, Addr: ranges, Ranges: ranges, Rnglists: ranges}
		sup := *d
		d.Sup = &sup
		d.Split = func(uint64, string, string) *dwarf.Data { own := sup; return &own }
		entries := dwarfentry.New(dwarfentry.Sections{Data: d, Loc: lists, Loclists: lists})
		for _, f := range entries.Frames(v) {
			_ = f.Path.Absolute() + f.StartPath.Relative() + f.StartPath.Base()
		}
		entries.Data(v)
		entries.Locals(v)
	})
}
