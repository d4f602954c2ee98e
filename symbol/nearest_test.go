package symbol

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"hallmark/addr"
	"hallmark/internal/ranges"
)

// TestNeighbours builds tables of the spans that matter for some addresses, and
// wants for these the answers of the table of all spans.
func TestNeighbours(t *testing.T) {
	r := random()
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

// TestLookupOffsets wants for many addresses at once the answers that each gets
// alone: of real files at the start, in the midst and behind the end of every
// symbol, and at addresses of code that were drawn.
func TestLookupOffsets(t *testing.T) {
	for _, name := range realFiles(t) {
		file := open(t, name)
		facts := readelf(t, name)
		var offsets []addr.Offset
		add := func(v addr.Virt) {
			if o, ok := file.Offset(v); ok {
				offsets = append(offsets, o)
			}
		}
		for _, s := range facts.symbols {
			add(addr.Virt(s.value))
			add(addr.Virt(s.value + s.size/2))
			add(addr.Virt(s.value + s.size))
		}
		for _, v := range textAddresses(t, facts, 2000) {
			add(v)
		}
		compareOffsets(t, file, offsets)
		r := random()
		r.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
		for some := range slices.Chunk(offsets[:min(len(offsets), 60)], 20) {
			compareOffsets(t, file, some)
		}
	}
}

// compareOffsets wants the same answers from LookupOffsets and LookupOffset.
func compareOffsets(t *testing.T, file *File, offsets []addr.Offset) {
	t.Helper()
	for i, got := range file.LookupOffsets(offsets) {
		if want := file.LookupOffset(offsets[i]); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v is %+v among %d, alone %+v", file.Name(), offsets[i], got, len(offsets), want)
		}
	}
}
