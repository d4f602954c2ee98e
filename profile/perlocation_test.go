package profile

import (
	"testing"

	pprof "github.com/google/pprof/profile"
)

// TestPerLocation has numbers that are used twice, and some that are too large.
func TestPerLocation(t *testing.T) {
	p := &pprof.Profile{}
	for _, id := range []uint64{1, 2, 2, 0, 0, 6, 7, 1 << 60} {
		p.Location = append(p.Location, &pprof.Location{ID: id})
	}
	elsewhere := &pprof.Location{ID: 1}
	all := append(p.Location, elsewhere)
	counts := NewPerLocation[int](p)
	kept := counts.At(elsewhere)
	for i, l := range all {
		*counts.At(l) = i
	}
	for i, l := range all {
		if got := *counts.At(l); got != i {
			t.Errorf("location %d: %d, want %d", i, got, i)
		}
	}
	if *kept != len(p.Location) {
		t.Errorf("a value has moved: %d", *kept)
	}
}
