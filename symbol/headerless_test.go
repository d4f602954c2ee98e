package symbol

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

const exportingSource = `
int hidden;
__attribute__((noinline)) static int local(int n) { return n * hidden; }
int first(int n) { return local(n) + 1; }
int second(int n) { return local(n) + first(n); }
int third(int n) { return first(n) + second(n); }
int main(int c, char **v) { return third(c); }
`

// stripHeaders returns a copy of a file without section headers, and without what only these lead to.
func stripHeaders(t *testing.T, name string) string {
	t.Helper()
	testenv.Tool(t, "llvm-objcopy-19")
	out := filepath.Join(t.TempDir(), filepath.Base(name))
	output(t, nil, "llvm-objcopy-19", "--strip-sections", name, out)
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Sections) > 0 {
		t.Fatalf("%s has %d sections", out, len(f.Sections))
	}
	return out
}

func openTest(t *testing.T, name string) *File {
	t.Helper()
	f, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestHeaderless looks up what the dynamic symbols of a file name, as debug/elf reads them by section headers, in a
// copy that has none. The starts of functions are those of the file.
func TestHeaderless(t *testing.T) {
	testenv.Tool(t, "gcc")
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Wl,--hash-style=gnu"},
		{"-shared", "-fPIC", "-Wl,--hash-style=sysv"},
		{"-rdynamic", "-Wl,--hash-style=gnu"},
		{"-rdynamic", "-no-pie", "-Wl,-z,noseparate-code"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			whole := filepath.Join(t.TempDir(), "prog")
			output(t, strings.NewReader(exportingSource), "gcc", append([]string{"-O2", "-x", "c", "-o", whole, "-"}, args...)...)
			f, twin := openTest(t, stripHeaders(t, whole)), openTest(t, whole)
			x, err := f.Index(IndexOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			witness, err := elf.Open(whole)
			if err != nil {
				t.Fatal(err)
			}
			defer witness.Close()
			symbols, err := witness.DynamicSymbols()
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, s := range symbols {
				if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Size == 0 {
					continue
				}
				found++
				last := addr.Virt(s.Value + s.Size - 1)
				for _, r := range []Result{f.LookupVirt(addr.Virt(s.Value)), f.LookupVirt(last), x.LookupVirt(last)} {
					if len(r.Frames) != 1 || r.Frames[0].Func != s.Name || r.Source != SourceDynsym {
						t.Errorf("%s: %+v", s.Name, r)
					}
				}
			}
			if found < 3 {
				t.Errorf("%d functions are exported", found)
			}
			got, err := describedIn(f.image)
			if err != nil {
				t.Fatal(err)
			}
			want, err := describedIn(twin.image)
			if err != nil || len(want) < 4 || !slices.Equal(got, want) {
				t.Errorf("described are %v, want %v: %v", got, want, err)
			}
			if len(f.Sections()) != 0 {
				t.Errorf("sections %v where there are no headers", f.Sections())
			}
		})
	}
}

// TestHeaderlessGo compares what Go programs without section headers say with what the same program says that has
// them.
func TestHeaderlessGo(t *testing.T) {
	testenv.Tool(t, "go")
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(double(4)) }\n\n//go:noinline\nfunc double(n int) int { return 2 * n }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"-ldflags=-s -w"}, {"-buildmode=pie"}} {
		whole := filepath.Join(t.TempDir(), "prog")
		output(t, nil, "go", append(append([]string{"build"}, args...), "-o", whole, source)...)
		f, twin := openTest(t, stripHeaders(t, whole)), openTest(t, whole)
		twin.NoDWARF = true
		named := 0
		for _, e := range twin.image.Segments {
			for v := e.Virt; e.Executable() && v < e.Virt+addr.Virt(e.FileSize); v += 4001 {
				got, want := f.LookupVirt(v), twin.LookupVirt(v)
				if want.Source != SourcePclntab {
					continue
				}
				if named++; !slices.Equal(got.Frames, want.Frames) {
					t.Fatalf("%v: %#x is %v, want %v", args, v, got.Frames, want.Frames)
				}
			}
		}
		if named < 50 {
			t.Errorf("%v: %d addresses have names", args, named)
		}
	}
}

// TestHeaderlessDamage leads PT_DYNAMIC astray. What is left answers, and the damage is known.
func TestHeaderlessDamage(t *testing.T) {
	testenv.Tool(t, "gcc")
	whole := filepath.Join(t.TempDir(), "lib.so")
	output(t, strings.NewReader(exportingSource), "gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", whole, "-")
	name := stripHeaders(t, whole)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer witness.Close()
	i := slices.IndexFunc(witness.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_DYNAMIC })
	for _, tag := range []elf.DynTag{elf.DT_SYMTAB, elf.DT_STRTAB, elf.DT_GNU_HASH, elf.DT_STRSZ} {
		broken := slices.Clone(data)
		at := broken[witness.Progs[i].Off:]
		for binary.LittleEndian.Uint64(at) != uint64(tag) {
			at = at[16:]
		}
		binary.LittleEndian.PutUint64(at[8:], 1<<40)
		if err := os.WriteFile(name, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		f := openTest(t, name)
		r := f.LookupVirt(f.image.Segments[1].Virt + 0x100)
		var damage *FormatError
		if len(r.Frames) > 0 || !errors.As(f.Damage(), &damage) || damage.Name != name {
			t.Errorf("%v: %+v, damage %v", tag, r, f.Damage())
		}
		if described, err := describedIn(f.image); err != nil || len(described) < 4 {
			t.Errorf("%v: %d functions are described: %v", tag, len(described), err)
		}
	}
}
