package symtab

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"hallmark/addr"
	"hallmark/internal/ranges"
)

// TestNeighbours builds tables of the spans that matter for some addresses, and
// wants for these the answers of the table of all spans.
func TestNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	order := func(a, b *ranges.Span) int {
		return cmp.Or(cmp.Compare(a.End-a.Start, b.End-b.Start), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Value, b.Value))
	}
	table := func(spans []ranges.Span) ranges.List {
		slices.SortFunc(spans, ranges.ByStart)
		return ranges.Flatten(ranges.SettleUnsized(spans), order)
	}
	left := 0
	for range 5000 {
		spans := make([]ranges.Span, r.IntN(12))
		for i := range spans {
			start := r.Uint64N(40)
			spans[i] = ranges.Span{Start: start, End: start + 1 + r.Uint64N(20), Value: uint32(i)}
			if r.IntN(3) == 0 {
				spans[i].End, spans[i].Unsized = 60, true
			}
			if r.IntN(6) == 0 {
				spans[i].Rank = ranges.Hidden
			}
		}
		var addresses []addr.Virt
		for range 1 + r.IntN(4) {
			addresses = append(addresses, addr.Virt(r.Uint64N(64)))
		}
		n := newNeighbours(addresses)
		for _, s := range spans {
			n.offer(s)
		}
		n.settle()
		var few []ranges.Span
		for _, s := range spans {
			if n.matters(s.Start, s.End, s.Unsized) {
				few = append(few, s)
			}
		}
		left += len(spans) - len(few)
		got, want := table(few), table(slices.Clone(spans))
		for _, a := range addresses {
			if g, w := valueAt(&got, a), valueAt(&want, a); g != w {
				t.Fatalf("%d is in span %d, in the table of all in %d: %+v", a, g, w, spans)
			}
		}
	}
	if left == 0 {
		t.Error("every span mattered")
	}
}

// valueAt returns the value of the range that holds a, -1 where none does.
func valueAt(r *ranges.List, a addr.Virt) int {
	if i, ok := r.Find(uint64(a)); ok {
		return int(r.Values[i])
	}
	return -1
}
