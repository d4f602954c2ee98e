package symbol

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// TestSortedSymbols wants the order of a stable sort: of symbols of one address and size the last of
// the table counts.
func TestSortedSymbols(t *testing.T) {
	symbols, rng := make([]ELFSymbol, 2000), testenv.Rand(t)
	for i := range symbols {
		symbols[i] = ELFSymbol{Name: strconv.Itoa(i), Virt: addr.Virt(rng.IntN(100)), Size: uint64(rng.IntN(3))}
	}
	want := slices.Clone(symbols)
	slices.SortStableFunc(want, func(a, b ELFSymbol) int {
		return cmp.Or(cmp.Compare(a.Virt, b.Virt), cmp.Compare(a.Size, b.Size))
	})
	if got := sortedSymbols(symbols); !slices.Equal(got, want) {
		t.Error("the order differs from that of a stable sort")
	}
}

// TestFewAddressesOneByOne asks a table for one address after another: soon it is read whole, once.
func TestFewAddressesOneByOne(t *testing.T) {
	alone, whole := 0, 0
	s := &source{kind: SourceSymtab, loadAt: func([]addr.Virt) (finder, error) { alone++; return nil, nil }}
	s.load = func() (finder, error) { whole++; s.loaded.Store(true); return nil, nil }
	for v := range addr.Virt(100) {
		if _, err := s.at(v); err != nil {
			t.Fatal(err)
		}
	}
	if alone != 4 || whole != 96 {
		t.Errorf("read for %d addresses alone and asked whole %d times, want 4 and 96", alone, whole)
	}
}
