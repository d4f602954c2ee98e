package testenv

import (
	"math"
	"testing"
)

func TestMostOdd(t *testing.T) {
	for _, c := range []struct {
		n    int
		rate float64
		want int
	}{
		{0, 0.5, 0}, {10, 0, 0}, {10, 1, 10}, {1, 1e-10, 0}, {1, 1e-3, 1},
		{10, 1e-3, 3}, {100, 1e-3, 6}, {1000, 1e-3, 11}, // by hand: of 10, C(10,4) 1e-12 = 2e-10 are 4, C(10,3) 1e-9 = 1e-7 are 3
	} {
		if got := MostOdd(c.n, c.rate); got != c.want {
			t.Errorf("of %d at %v: %d, want %d", c.n, c.rate, got, c.want)
		}
	}
	sum := 0.0
	for k := range 201 {
		sum += chanceOf(k, 200, 0.03)
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("all chances are %v", sum)
	}
}
