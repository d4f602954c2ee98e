package ranges

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFlatten compares with the answer of asking every span.
func TestFlatten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	order := func(a, b *Span) int {
		return cmp.Or(cmp.Compare(a.End-a.Start, b.End-b.Start), cmp.Compare(a.Value, b.Value))
	}
	for range 2000 {
		spans := make([]Span, r.IntN(12))
		for i := range spans {
			start := r.Uint64N(40)
			spans[i] = Span{Start: start, End: start + r.Uint64N(20), Value: uint32(i)}
			if r.IntN(6) == 0 {
				spans[i].Rank = Hidden
			}
		}
		slices.SortFunc(spans, ByStart)
		flat := Flatten(spans, order)
		for v := range uint64(64) {
			want := -1
			for i := range spans {
				if s := &spans[i]; s.Start <= v && v < s.End && (want < 0 || order(s, &spans[want]) < 0) {
					want = i
				}
			}
			i, ok := flat.Find(v)
			switch {
			case want >= 0 && spans[want].Rank == Hidden:
				want = -1
			case want >= 0 && ok && flat.Values[i] == spans[want].Value:
				continue
			}
			if ok || want >= 0 {
				t.Fatalf("%d is in range %d, %v, want span %d of %+v", v, i, ok, want, spans)
			}
		}
		mustBeDisjoint(t, &flat)
	}
}

func mustBeDisjoint(t testing.TB, r *List) {
	t.Helper()
	for i := range r.Starts {
		if r.Sizes[i] == 0 || i > 0 && r.Starts[i-1]+uint64(r.Sizes[i-1]) > r.Starts[i] {
			t.Fatalf("range %d (%#x, %#x bytes) is empty or overlaps the one before", i, r.Starts[i], r.Sizes[i])
		}
	}
}

// TestFlattenDeepNesting flattens spans that all overlap, which must not take
// time in the square of their number.
func TestFlattenDeepNesting(t *testing.T) {
	const n = 300000
	spans := make([]Span, n)
	for i := range spans {
		spans[i] = Span{Start: uint64(i), End: 2*n - uint64(i), Value: uint32(i)}
	}
	compared := 0
	flat := Flatten(spans, func(a, b *Span) int {
		compared++
		return cmp.Compare(a.End-a.Start, b.End-b.Start)
	})
	if len(flat.Starts) != 2*n-1 {
		t.Errorf("%d ranges, want %d", len(flat.Starts), 2*n-1)
	}
	if compared > 100*n {
		t.Errorf("%d spans were compared %d times", n, compared)
	}
}

// TestSortByStart compares the order of spans with that of the standard library, near
// each other and far apart.
func TestSortByStart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, distance := range []uint64{1, 16, 1 << 12, math.MaxUint32, math.MaxUint32 + 1, 1 << 60} {
		spans := []Span{{Start: distance}, {Start: 0}}
		for i := range 1000 {
			spans = append(spans, Span{Start: r.Uint64N(distance + 1), Value: uint32(i), Unsized: i%3 == 0})
		}
		for i := range spans {
			spans[i].Start += math.MaxUint64 - 1<<61
		}
		want := slices.Clone(spans)
		slices.SortStableFunc(want, ByStart)
		if got := SortByStart(spans); !slices.Equal(got, want) {
			t.Errorf("spans that start within %#x are in another order", distance)
		}
	}
}

// TestPaint compares paint with flatten, for the order in which the last one counts.
func TestPaint(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		spans := make([]Span, random.IntN(40))
		for i := range spans {
			start := random.Uint64N(100)
			spans[i] = Span{Start: start, End: start + random.Uint64N(30), Value: uint32(i)}
			if round%3 == 0 {
				spans[i].Start, spans[i].End = 10*uint64(i), 10*uint64(i)+1+random.Uint64N(10)
			}
		}
		got := Paint(slices.Clone(spans))
		slices.SortFunc(spans, ByStart)
		want := Flatten(spans, func(a, b *Span) int { return cmp.Compare(b.Value, a.Value) })
		if !slices.Equal(got.Starts, want.Starts) || !slices.Equal(got.Sizes, want.Sizes) || !slices.Equal(got.Values, want.Values) {
			t.Fatalf("%v:\n%v\n%v", spans, got, want)
		}
	}
}
