package local

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/symbol"
)

const internalFunctions = `
#include <vector>
namespace {
volatile int sink;
__attribute__((noinline)) int first(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * sink; return s; }
__attribute__((noinline)) int second(int n) { std::vector<int> v(n); for (int &i : v) i = sink; return v[n / 2]; }
__attribute__((noinline)) int third(int n) { return n > 3 ? first(n) - second(n) : n * sink; }
}
int main(int n, char **) { return third(n + 5) + first(n) + second(n + 1); }
`

// TestStarts profiles code of a program without symbols: each function has a name of its
// own, the same for each copy, and the true one once the symbols are there.
func TestStarts(t *testing.T) {
	dir := t.TempDir()
	full, stripped, copied := filepath.Join(dir, "full", "prog"), filepath.Join(dir, "stripped", "prog"), filepath.Join(dir, "copied", "prog")
	for _, name := range []string{full, stripped, copied} {
		if err := os.Mkdir(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	source := filepath.Join(dir, "prog.cc")
	if err := os.WriteFile(source, []byte(internalFunctions), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "g++", "-O2", "-Wl,--build-id", "-o", full, source)
	command(t, "strip", "-o", stripped, full)
	command(t, "strip", "-o", copied, full)

	described := describedStarts(t, stripped)
	id, functions := programSymbols(t, full)
	want := map[string]string{} // by true name
	for name, s := range functions {
		if !described[s.Value] {
			t.Fatalf("%s at %#x is not described", name, s.Value)
		}
		want[name] = fmt.Sprintf("prog+%#x", s.Value)
	}
	for _, path := range []string{stripped, copied} {
		p, names := profileOf(t, id, path, functions)
		_, _ = profile.Symbolize(t.Context(), p, new(Symbols))
		if covered := profile.MeasureCoverage(p, nil).Symbolized; covered != 0 {
			t.Errorf("%d frames have symbols", covered)
		}
		profile.NameStarts(t.Context(), p, new(Symbols))
		for l, name := range names {
			if len(l.Line) != 1 || l.Line[0].Function.Name != want[name] || !profile.IsUnnamed(l.Line[0].Function) {
				t.Errorf("%s: %#x of %s is %v, want %s", path, l.Address, name, l.Line, want[name])
			}
		}
		if covered := profile.MeasureCoverage(p, nil).Symbolized; covered != 0 {
			t.Errorf("%d frames count as symbolized", covered)
		}
		p.Mapping[0].File = full
		_, _ = profile.Symbolize(t.Context(), p, new(Symbols))
		for l, name := range names {
			if len(l.Line) != 1 || l.Line[0].Function.SystemName != name {
				t.Errorf("%#x is %v, want %s", l.Address, l.Line, name)
			}
		}
	}
}

// TestStartsOfKeptIndex asks for starts in a file that is gone, of which an index is kept.
func TestStartsOfKeptIndex(t *testing.T) {
	dir := t.TempDir()
	source, full, stripped := filepath.Join(dir, "prog.cc"), filepath.Join(dir, "full"), filepath.Join(dir, "prog")
	if err := os.WriteFile(source, []byte(internalFunctions), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "g++", "-O2", "-Wl,--build-id", "-o", full, source)
	command(t, "strip", "-o", stripped, full)
	id, functions := programSymbols(t, full)
	var offsets []addr.Offset
	for _, s := range functions {
		offsets = append(offsets, addr.Offset(s.Value), addr.Offset(s.Value+s.Size-1))
	}
	s := &Symbols{Library: &debuginfo.Library{Indexes: debuginfo.Indexes{Dir: filepath.Join(dir, "indexes")}}}
	want := s.Starts(t.Context(), &profile.Binary{ID: id, Path: stripped}, offsets)
	file, err := symbol.OpenFile(stripped)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Library.Prepare(t.Context(), id, file, symbol.IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	file.Close()
	if err := os.Remove(stripped); err != nil {
		t.Fatal(err)
	}
	if got := s.Starts(t.Context(), &profile.Binary{ID: id, Path: stripped}, offsets); !slices.Equal(got, want) || slices.Contains(got, symbol.NoStart) {
		t.Errorf("by the index %v, by the file %v", got, want)
	}
}

// TestNoStarts asks about a file that is not there.
func TestNoStarts(t *testing.T) {
	id, err := buildid.New(buildid.GNU, []byte("no file has this one"))
	if err != nil {
		t.Fatal(err)
	}
	if got := new(Symbols).Starts(t.Context(), &profile.Binary{ID: id, Path: "/nonexistent/prog"}, []addr.Offset{0x1000}); len(got) != 1 || got[0] != symbol.NoStart {
		t.Errorf("got %v", got)
	}
}

// profileOf returns a profile of the first, the last and another byte of each function,
// and to which function each location belongs.
func profileOf(t *testing.T, id buildid.ID, path string, functions map[string]elf.Symbol) (*pprof.Profile, map[*pprof.Location]string) {
	t.Helper()
	b := profile.NewBuilder(1)
	names := map[*pprof.Location]string{}
	binary := &profile.Binary{ID: id, Path: path}
	for name, s := range functions {
		for _, at := range []uint64{s.Value, s.Value + s.Size/2, s.Value + s.Size - 1} {
			frame := profile.Frame{Binary: binary, Offset: addr.Offset(at)}
			b.Add([]profile.Frame{frame}, &profile.Labels{}, 1, 1)
			names[b.Location(&frame)] = name
		}
	}
	return b.Profile(), names
}

// describedStarts returns the addresses of functions that readelf finds described.
func describedStarts(t *testing.T, name string) map[uint64]bool {
	t.Helper()
	starts := map[uint64]bool{}
	for line := range strings.Lines(command(t, "readelf", "--debug-dump=frames", name)) {
		var start, end uint64
		if _, pc, ok := strings.Cut(line, " pc="); ok {
			if _, err := fmt.Sscanf(pc, "%x..%x", &start, &end); err != nil {
				t.Fatal(line, err)
			}
			starts[start] = true
		}
	}
	return starts
}

// programSymbols returns the functions of the program's source. Their offsets in the file
// are their addresses.
func programSymbols(t *testing.T, name string) (buildid.ID, map[string]elf.Symbol) {
	t.Helper()
	info, err := buildid.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]elf.Symbol{}
	for _, s := range symbols {
		if s.Name == "main" || strings.HasPrefix(s.Name, "_ZN12_GLOBAL__N_1") && elf.ST_TYPE(s.Info) == elf.STT_FUNC && !strings.Contains(s.Name, ".") {
			functions[s.Name] = s
		}
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && s.Off != s.Vaddr {
			t.Skip("addresses are no offsets here")
		}
	}
	if len(functions) != 4 {
		t.Fatalf("functions %v", functions)
	}
	return info.ID, functions
}

func command(t *testing.T, tool string, args ...string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, tool), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", tool, err, out)
	}
	return string(out)
}
