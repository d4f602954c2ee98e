package symbol

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

// TestFlatten compares with the answer of asking every span.
func TestFlatten(t *testing.T) {
	r := random()
	order := func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.end-a.start, b.end-b.start), cmp.Compare(a.value, b.value))
	}
	for range 2000 {
		spans := make([]span, r.IntN(12))
		for i := range spans {
			start := r.Uint64N(40)
			spans[i] = span{start: start, end: start + r.Uint64N(20), value: uint32(i)}
			if r.IntN(6) == 0 {
				spans[i].rank = hidden
			}
		}
		slices.SortFunc(spans, byStart)
		flat := flatten(spans, order)
		for v := range uint64(64) {
			want := -1
			for i := range spans {
				if s := &spans[i]; s.start <= v && v < s.end && (want < 0 || order(s, &spans[want]) < 0) {
					want = i
				}
			}
			i, ok := flat.find(v)
			switch {
			case want >= 0 && spans[want].rank == hidden:
				want = -1
			case want >= 0 && ok && flat.values[i] == spans[want].value:
				continue
			}
			if ok || want >= 0 {
				t.Fatalf("%d is in range %d, %v, want span %d of %+v", v, i, ok, want, spans)
			}
		}
		assertDisjoint(t, &flat)
	}
}

func assertDisjoint(t testing.TB, r *ranges) {
	t.Helper()
	for i := range r.starts {
		if r.sizes[i] == 0 || i > 0 && r.starts[i-1]+uint64(r.sizes[i-1]) > r.starts[i] {
			t.Fatalf("range %d (%#x, %#x bytes) is empty or overlaps the one before", i, r.starts[i], r.sizes[i])
		}
	}
}

// TestFlattenDeepNesting flattens spans that all overlap, which must not take
// time in the square of their number.
func TestFlattenDeepNesting(t *testing.T) {
	const n = 300000
	spans := make([]span, n)
	for i := range spans {
		spans[i] = span{start: uint64(i), end: 2*n - uint64(i), value: uint32(i)}
	}
	compared := 0
	flat := flatten(spans, func(a, b *span) int {
		compared++
		return cmp.Compare(a.end-a.start, b.end-b.start)
	})
	if len(flat.starts) != 2*n-1 {
		t.Errorf("%d ranges, want %d", len(flat.starts), 2*n-1)
	}
	if compared > 100*n {
		t.Errorf("%d spans were compared %d times", n, compared)
	}
}

// TestSortByStart compares the order of spans with that of the standard library, near
// each other and far apart.
func TestSortByStart(t *testing.T) {
	r := random()
	for _, distance := range []uint64{1, 16, 1 << 12, math.MaxUint32, math.MaxUint32 + 1, 1 << 60} {
		spans := []span{{start: distance}, {start: 0}}
		for i := range 1000 {
			spans = append(spans, span{start: r.Uint64N(distance + 1), value: uint32(i), unsized: i%3 == 0})
		}
		for i := range spans {
			spans[i].start += math.MaxUint64 - 1<<61
		}
		want := slices.Clone(spans)
		slices.SortStableFunc(want, byStart)
		if got := sortByStart(spans); !slices.Equal(got, want) {
			t.Errorf("spans that start within %#x are in another order", distance)
		}
	}
}

// TestPaint compares paint with flatten, for the order in which the last one counts.
func TestPaint(t *testing.T) {
	random := random()
	for round := range 3000 {
		spans := make([]span, random.IntN(40))
		for i := range spans {
			start := random.Uint64N(100)
			spans[i] = span{start: start, end: start + random.Uint64N(30), value: uint32(i)}
			if round%3 == 0 {
				spans[i].start, spans[i].end = 10*uint64(i), 10*uint64(i)+1+random.Uint64N(10)
			}
		}
		got := paint(slices.Clone(spans))
		slices.SortFunc(spans, byStart)
		want := flatten(spans, func(a, b *span) int { return cmp.Compare(b.value, a.value) })
		if !slices.Equal(got.starts, want.starts) || !slices.Equal(got.sizes, want.sizes) || !slices.Equal(got.values, want.values) {
			t.Fatalf("%v:\n%v\n%v", spans, got, want)
		}
	}
}
