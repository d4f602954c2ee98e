package symbol

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"hallmark/addr"
)

// TestFunctions wants each function of the symbol table at its address, once, and one of which all
// code is inlined, at code of the function that it is inlined into.
func TestFunctions(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "prog")
	text := `
static inline __attribute__((always_inline)) int always(int n) { return n * n + 1; }
static __attribute__((noinline)) int local(int n) { return always(n) + 2; }
__attribute__((noinline)) int both(int n) { return n ^ 0x55; }
__attribute__((noinline)) int caller(int n) { return local(n) + always(n + 1) + both(n); }
int main(int n, char **v) { return caller(n) + both(n + 1) + always(n); }
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	output(t, nil, "gcc", "-g", "-O2", "-o", program, source)
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	found, lines := map[string]IndexedFunction{}, map[string]int{"always": 2, "local": 3, "both": 4, "caller": 5, "main": 6}
	for f := range index(t, program).Functions() {
		if old, ok := found[f.Linkage]; ok {
			t.Errorf("%+v and %+v", old, f)
		}
		found[f.Linkage] = f
	}
	var main elf.Symbol
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Section == elf.SHN_UNDEF {
			continue
		}
		got := found[s.Name]
		if got.Virt != addr.Virt(s.Value) || got.Inlined {
			t.Errorf("%s is at %#x: %+v", s.Name, s.Value, got)
		}
		if s.Name == "main" {
			main = s
		}
	}
	for name, line := range lines {
		if got := found[name]; got.File != source || got.Start != line || got.Inlined != (name == "always") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if v := uint64(found["always"].Virt); v >= main.Value+main.Size && main.Value+main.Size < uint64(found["local"].Virt) {
		t.Errorf("inlined code is at %#x", v)
	}
	for range index(t, program).Functions() {
		break
	}
}

func BenchmarkFunctions(b *testing.B) {
	x := index(b, os.Getenv("FUNCTIONS_OF"))
	n := 0
	for b.Loop() {
		n = 0
		for range x.Functions() {
			n++
		}
	}
	b.ReportMetric(float64(n), "functions")
}
