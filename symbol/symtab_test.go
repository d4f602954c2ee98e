package symbol

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
)

// TestAgainstReadelf applies the rules of symtab, one symbol after another, to
// what readelf prints, and compares.
func TestAgainstReadelf(t *testing.T) {
	for _, name := range realFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			f, facts := open(t, name), readelf(t, name)
			f.NoDWARF = true
			f.without(SourcePclntab, SourcePLT)
			named := 0
			for _, v := range textAddresses(t, facts, 5000) {
				got, want := linkage(f, v), facts.namesAt(uint64(v))
				if !slices.Contains(want, got) && (got != "" || len(want) != 0) {
					t.Fatalf("%v is %q, want one of %q", v, got, want)
				}
				if got != "" {
					named++
				}
			}
			t.Logf("%d of 5000 addresses have a name", named)
		})
	}
}

// without leaves sources out.
func (f *File) without(kinds ...Source) {
	f.sources = slices.DeleteFunc(f.sources, func(s *source) bool { return slices.Contains(kinds, s.kind) })
}

// namesAt returns the names that the address may get.
func (f *readelfFacts) namesAt(v uint64) []string {
	symbols := f.code[f.sectionAt(v).index]
	best := smallest(symbols, v)
	if best == nil && !f.dynamic {
		best = nearestUnsized(symbols, v)
	}
	var names []string
	for _, s := range best {
		if s.typ != "OBJECT" {
			names = append(names, s.name)
		}
	}
	return names
}

func (s readelfSymbol) countsAsCode() bool {
	switch s.typ {
	case "FUNC", "IFUNC", "OBJECT":
		return true
	case "NOTYPE":
		return s.name != "" && s.name[0] != '$' && !strings.HasPrefix(s.name, ".L")
	}
	return false
}

// smallest returns the symbols with a size that cover v, those of the smallest
// size and of them those that start last.
func smallest(symbols []readelfSymbol, v uint64) (best []readelfSymbol) {
	for _, s := range symbols {
		if v-s.value >= s.size {
			continue
		}
		order := -1
		if best != nil {
			order = cmp.Or(cmp.Compare(s.size, best[0].size), cmp.Compare(best[0].value, s.value))
		}
		switch {
		case order < 0:
			best = []readelfSymbol{s}
		case order == 0:
			best = append(best, s)
		}
	}
	return best
}

// nearestUnsized returns the symbols without size at the last address up to v at
// which there is any symbol.
func nearestUnsized(symbols []readelfSymbol, v uint64) (best []readelfSymbol) {
	nearest := uint64(0)
	for _, s := range symbols {
		if s.value <= v {
			nearest = max(nearest, s.value)
		}
	}
	for _, s := range symbols {
		if s.value == nearest && s.size == 0 && smallest(symbols, nearest) == nil {
			best = append(best, s)
		}
	}
	return best
}

// TestAgainstSymbolizers compares with llvm-symbolizer and eu-addr2line. There are
// two kinds of difference, and no others:
//
//   - another alias: a symbol with the same address and size;
//   - llvm-symbolizer lets a symbol without size reach into the sections that
//     follow its own: _init names the PLT.
func TestAgainstSymbolizers(t *testing.T) {
	for _, name := range realFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			f, facts := open(t, name), readelf(t, name)
			f.NoDWARF = true
			f.without(SourcePLT) // which they do not know
			addresses := textAddresses(t, facts, 5000)
			for witness, names := range map[string][]string{
				"llvm-symbolizer": llvmNames(t, name, addresses),
				"eu-addr2line":    elfutilsNames(t, name, addresses),
			} {
				kinds := map[string]int{}
				for i, v := range addresses {
					got, want := linkage(f, v), names[i]
					kind := facts.difference(v, got, want)
					kinds[kind]++
					if kind == "other" {
						t.Errorf("%v is %q, and %q to %s", v, got, want, witness)
					}
				}
				t.Logf("%s: %v", witness, kinds)
			}
		})
	}
}

// difference returns how two answers differ.
func (f *readelfFacts) difference(v addr.Virt, got, want string) string {
	// In .symtab Go's linker writes the calling convention of assembler functions
	// and replaces a letter; in pclntab it does not.
	if strings.ReplaceAll(got, "·", ".") == strings.TrimSuffix(want, ".abi0") {
		return "same"
	}
	if f.areAliases(got, want) {
		return "alias"
	}
	isElsewhere := func(s readelfSymbol) bool {
		return s.name == want && s.size == 0 && s.ndx != f.sectionAt(uint64(v)).index
	}
	if got == "" && slices.ContainsFunc(f.symbols, isElsewhere) {
		return "symbol of another section"
	}
	return "other"
}

func (f *readelfFacts) areAliases(a, b string) bool {
	return slices.ContainsFunc(f.symbols, func(x readelfSymbol) bool {
		return x.name == a && slices.ContainsFunc(f.symbols, func(y readelfSymbol) bool {
			return y.name == b && x.value == y.value && x.size == y.size
		})
	})
}

// llvmNames returns what llvm-symbolizer calls the functions: without the lines
// of DWARF, a paragraph of name and place for each address.
func llvmNames(t *testing.T, file string, addresses []addr.Virt) []string {
	lines := output(t, asInput(addresses), "llvm-symbolizer",
		"--no-inlines", "--functions=linkage", "--no-demangle", "--debug-file-directory=/nonexistent", "-e", file)
	return firstOf(t, lines, 3, len(addresses))
}

// elfutilsNames returns what eu-addr2line calls them: name+offset, then a place.
func elfutilsNames(t *testing.T, file string, addresses []addr.Virt) []string {
	lines := output(t, asInput(addresses), "eu-addr2line", "-S", "--debuginfo-path=/nonexistent", "-e", file)
	return firstOf(t, lines, 2, len(addresses))
}

// firstOf returns the name in the first line of every n.
func firstOf(t *testing.T, lines []string, n, count int) []string {
	t.Helper()
	if len(lines) < n*count {
		t.Fatalf("%d lines for %d addresses", len(lines), count)
	}
	names := make([]string, count)
	for i := range names {
		name := lines[n*i]
		if strings.HasPrefix(name, "?") || strings.HasPrefix(name, "(") {
			continue
		}
		if at := strings.LastIndex(name, "+0x"); at > 0 {
			name = name[:at]
		}
		names[i], _, _ = strings.Cut(name, "@")
	}
	return names
}
