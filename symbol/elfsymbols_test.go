package symbol

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/symtab"
)

// TestELFSymbols compares all symbols of code and data with what readelf prints.
func TestELFSymbols(t *testing.T) {
	for _, name := range realFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			got, err := open(t, name).ELFSymbols()
			if err != nil {
				t.Fatal(err)
			}
			inMemory := allocated(t, name)
			var want []ELFSymbol
			for _, s := range readelf(t, name).symbols {
				counts := slices.Contains([]string{"OBJECT", "FUNC", "IFUNC"}, s.typ) || s.typ == "NOTYPE" && !symtab.IsAssemblers(s.name)
				if counts && inMemory[s.ndx] && s.name != "" {
					want = append(want, ELFSymbol{Name: s.name, Virt: addr.Virt(s.value), Size: s.size})
				}
			}
			for i := range got {
				got[i].File = "" // which TestELFSymbolFiles checks
			}
			order := func(a, b ELFSymbol) int {
				return cmp.Or(cmp.Compare(a.Virt, b.Virt), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
			}
			if !slices.IsSortedFunc(got, func(a, b ELFSymbol) int {
				return cmp.Or(cmp.Compare(a.Virt, b.Virt), cmp.Compare(a.Size, b.Size))
			}) {
				t.Error("symbols are not sorted")
			}
			slices.SortFunc(got, order)
			slices.SortFunc(want, order)
			if !slices.Equal(got, want) {
				t.Errorf("%d symbols, readelf has %d", len(got), len(want))
			}
			t.Logf("%d symbols", len(got))
		})
	}
}

// allocated returns the numbers of the sections that readelf marks with A.
func allocated(t *testing.T, name string) map[string]bool {
	t.Helper()
	numbers := map[string]bool{}
	for _, line := range output(t, nil, "readelf", "-SW", name) {
		index, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "["), "]")
		if f := strings.Fields(rest); ok && len(f) >= 10 && strings.Contains(f[6], "A") {
			numbers[strings.TrimSpace(index)] = true
		}
	}
	return numbers
}

// TestELFSymbolFiles checks that local symbols have their source file, and others none.
func TestELFSymbolFiles(t *testing.T) {
	symbols, err := open(t, compile(t, "-O1")).ELFSymbols()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, s := range symbols {
		files[s.Name] = s.File
	}
	for name, want := range map[string]string{"hidden": "source.c", "visible": "", "main": "", "completed.0": "crtstuff.c"} {
		if got, ok := files[name]; !ok || got != want {
			t.Errorf("%s (there: %t) is of %q, want %q", name, ok, got, want)
		}
	}
}

// TestSections compares the allocated sections with what readelf prints.
func TestSections(t *testing.T) {
	for _, args := range [][]string{{"-O1"}, {"-O1", "-c"}} {
		name := compile(t, args...)
		f := open(t, name)
		if got, want := f.Relocatable(), slices.Contains(args, "-c"); got != want {
			t.Errorf("%v: relocatable is %t", args, got)
		}
		if f.AddressSize() != 8 {
			t.Errorf("%v: addresses have %d bytes", args, f.AddressSize())
		}
		var got, want []string
		for _, s := range f.Sections() {
			virt := s.Virt
			if f.Relocatable() {
				virt = 0 // readelf knows nothing of the layout
			}
			got = append(got, fmt.Sprintf("%s %016x %06x %t", s.Name, uint64(virt), s.Size, s.Executable))
		}
		for _, line := range output(t, nil, "readelf", "-SW", name) {
			_, rest, ok := strings.Cut(line, "] .")
			if f := strings.Fields(rest); ok && len(f) >= 10 && strings.Contains(f[6], "A") {
				want = append(want, fmt.Sprintf(".%s %s %s %t", f[0], f[2], f[4], strings.Contains(f[6], "X")))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: sections\n%s\nwant\n%s", args, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
