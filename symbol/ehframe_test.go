package symbol

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elffile"
)

// TestStartsAgainstWitness compares with what LLVM reads of the call frame
// information of libraries.
func TestStartsAgainstWitness(t *testing.T) {
	for _, name := range realFiles(t) {
		f, err := OpenFile(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := f.image.Section(".eh_frame")
		if s == nil || s.Type == elffile.SHT_NOBITS || !strings.Contains(name, "lib") || strings.Contains(name, "debug") {
			continue
		}
		var want []extent
		for _, line := range output(t, nil, "llvm-dwarfdump-19", "--eh-frame", name) {
			if _, pc, ok := strings.Cut(line, " pc="); ok {
				var start, end uint64
				if _, err := fmt.Sscanf(pc, "%x...%x", &start, &end); err != nil {
					t.Fatal(line, err)
				}
				want = append(want, extent{start, end - start})
			}
		}
		got, err := describedIn(f.image)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(want, func(a, b extent) int { return int(int64(a.start - b.start)) })
		want = slices.CompactFunc(want, func(a, b extent) bool { return a.start == b.start })
		want = slices.DeleteFunc(want, func(e extent) bool { return e.size == 0 })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d functions are described, want %d", name, len(got), len(want))
		}
		t.Logf("%s: %d functions", filepath.Base(name), len(got))
		if starts, _ := f.Starts([]addr.Offset{0, 1 << 62}); starts[0] != NoStart || starts[1] != NoStart {
			t.Errorf("%s: starts %v where there is no code", name, starts)
		}
	}
}

// TestStartsOfDamaged changes bytes of the call frame information.
func TestStartsOfDamaged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "prog")
	output(t, strings.NewReader("int f(int n) { return n; } int main() { return f(1); }"), "gcc", "-x", "c", "-o", name, "-")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, name).image.Section(".eh_frame")
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		damaged := slices.Clone(data)
		for range 1 + random.IntN(3) {
			damaged[s.Offset+random.Uint64N(s.Size)] = byte(random.Uint32())
		}
		f, err := NewFile(strings.NewReader(string(damaged)), name)
		if err != nil {
			t.Fatal(err)
		}
		offsets := []addr.Offset{0x1000, 0x1040, 0x1100, 0x1130}
		starts, _ := f.Starts(offsets)
		for i, start := range starts {
			if start != NoStart && start > offsets[i] {
				t.Fatalf("the start of %v is %v", offsets[i], start)
			}
		}
		f.Close()
	}
}
