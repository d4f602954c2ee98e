package dwarf

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDirectoryAt compares what a Directory finds with a look at every span.
func TestDirectoryAt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, spans := range []int{0, 1, 2, 3, 100, 1000} {
		dir := new(Directory)
		for unit := range spans {
			low := r.Uint64N(1000)
			dir.add([]Range{{low, low + r.Uint64N(10)}, {low + 5, low + 5 + r.Uint64N(3)}}, unit)
		}
		all := slices.Clone(dir.spans)
		dir.finish()
		for v := range uint64(1020) {
			var want []int32
			for _, s := range all {
				if s.Low <= v && v < s.High {
					want = append(want, s.unit)
				}
			}
			want = slices.Compact(want)
			if got := dir.At(v, nil); !slices.Equal(got, want) {
				t.Fatalf("%d is in units %d of %d, want %d", v, got, spans, want)
			}
		}
	}
}
