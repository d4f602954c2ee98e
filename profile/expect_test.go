package profile

import (
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/reason"
)

// TestExpect builds a profile with room that was made before, too little of it, and none: they are the
// same, and enough room saves allocations.
func TestExpect(t *testing.T) {
	const locations, samples = 3000, 1000
	build := func(expectLocations, expectSamples int) *pprof.Profile {
		b := NewBuilder(1)
		if expectSamples > 0 {
			b.Expect(expectLocations, expectSamples)
		}
		for i := range uint64(samples) {
			stack := make([]*pprof.Location, 3)
			for k := range stack {
				stack[k] = b.Location(&Frame{Addr: addr.Abs(3*i + uint64(k)), Reason: reason.Anonymous})
			}
			b.Count(b.Stack(stack, Walk{}), b.Owner(&Labels{}), 1, 1)
		}
		return b.Profile()
	}
	want := build(0, 0).String()
	for _, n := range []int{1, 1000} {
		if got := build(3*n, n).String(); got != want {
			t.Errorf("with room for %d samples the profile differs", n)
		}
	}
	none := testing.AllocsPerRun(3, func() { build(0, 0) })
	enough := testing.AllocsPerRun(3, func() { build(locations, samples) })
	if enough >= none {
		t.Errorf("%v allocations with room for all, %v without", enough, none)
	}
}
