package intern

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestValues numbers few and many values, some of them again, beside a map.
func TestValues(t *testing.T) {
	type key struct {
		object *int
		at     uint64
	}
	objects := make([]int, 7)
	for _, distinct := range []uint64{1, 2, 40, 50, 1000, 100_000} {
		var v Values[key]
		want, r := map[key]uint32{}, rand.New(rand.NewPCG(1, distinct))
		if _, ok := v.Find(key{}); ok || v.Len() != 0 {
			t.Fatal("an empty set knows a value")
		}
		for range 3 * distinct {
			k := key{&objects[r.IntN(len(objects))], r.Uint64N(distinct) << (r.UintN(3) * 20)}
			n, known := want[k]
			if found, ok := v.Find(k); ok != known || ok && found != n {
				t.Fatalf("%v is found as %d, %v; want %d, %v", k, found, ok, n, known)
			}
			if !known {
				n = uint32(len(want))
				want[k] = n
			}
			if got, isNew := v.Number(k); got != n || isNew == known {
				t.Fatalf("%v has the number %d, new: %v; want %d", k, got, isNew, n)
			}
		}
		if v.Len() != len(want) || len(v.All()) != len(want) {
			t.Errorf("%d values, want %d", v.Len(), len(want))
		}
		for n, k := range v.All() {
			if want[k] != uint32(n) {
				t.Errorf("%v is at %d, want %d", k, n, want[k])
			}
		}
	}
}

// TestSequences numbers sequences, among them beginnings and ends of others.
func TestSequences(t *testing.T) {
	var s Sequences
	want, r := map[string]uint32{}, rand.New(rand.NewPCG(1, 2))
	long := make([]uint32, 40)
	for i := range long {
		long[i] = r.Uint32() >> r.UintN(32)
	}
	if _, ok := s.Find(nil); ok {
		t.Fatal("an empty set knows a sequence")
	}
	for range 5000 {
		from := r.IntN(len(long) + 1)
		sequence := slices.Clone(long[from : from+r.IntN(len(long)-from+1)])
		if len(sequence) > 0 && r.IntN(2) == 0 {
			sequence[r.IntN(len(sequence))] = r.Uint32N(3)
		}
		var key []byte
		for _, n := range sequence {
			key = binary.NativeEndian.AppendUint32(key, n)
		}
		n, known := want[string(key)]
		if found, ok := s.Find(sequence); ok != known || ok && found != n {
			t.Fatalf("%v is found as %d, %v; want %d, %v", sequence, found, ok, n, known)
		}
		if !known {
			n = uint32(len(want))
			want[string(key)] = n
		}
		if got := s.Number(sequence); got != n || !slices.Equal(s.At(n), sequence) {
			t.Fatalf("%v has the number %d, which is %v; want %d", sequence, got, s.At(n), n)
		}
		clear(sequence) // a caller's memory is his own
	}
	if s.Len() != len(want) || s.Len() < 1000 {
		t.Errorf("%d sequences, want %d", s.Len(), len(want))
	}
	for key := range maps.Keys(want) {
		if got := s.At(want[key]); len(got) != len(key)/4 {
			t.Errorf("%d has %d numbers, want %d", want[key], len(got), len(key)/4)
		}
	}
}

// TestExpect numbers as many values as were expected, fewer and more.
func TestExpect(t *testing.T) {
	for _, expected := range []int{0, 1, 47, 48, 49, 96, 1000} {
		for _, n := range []int{expected, expected / 2, 3*expected + 1} {
			var v Values[int]
			var s Sequences
			v.Expect(expected)
			s.Expect(expected)
			for i := range n {
				if got, isNew := v.Number(-i); got != uint32(i) || !isNew || s.Number([]uint32{uint32(i)}) != uint32(i) {
					t.Fatalf("with room for %d, %d has the number %d", expected, i, got)
				}
			}
			if n == expected && n > 0 && len(v.table.slots) != 1<<(64-v.table.shift) {
				t.Errorf("%d slots, %d bits", len(v.table.slots), 64-v.table.shift)
			}
			v.Expect(2 * n)
			if v.Len() != n || s.Len() != n {
				t.Errorf("%d and %d of %d", v.Len(), s.Len(), n)
			}
		}
	}
}

// BenchmarkSequences looks for known stacks of 24 frames.
func BenchmarkSequences(b *testing.B) {
	var s Sequences
	all := make([][]uint32, 30_000)
	for i := range all {
		all[i] = make([]uint32, 24)
		for j := range all[i] {
			all[i][j] = uint32(i * j)
		}
		s.Number(all[i])
	}
	for b.Loop() {
		for _, sequence := range all {
			s.Number(sequence)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/sequence")
}
