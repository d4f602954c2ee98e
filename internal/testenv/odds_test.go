package testenv

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
)

// TestUpperTail compares with what can be counted by hand, and with a table of the normal
// distribution, six deviations from the middle.
func TestUpperTail(t *testing.T) {
	for _, test := range []struct {
		k, n int64
		rate float64
		want float64
	}{
		{0, 10, 0.5, 1},
		{1, 1, 0.25, 0.25},
		{2, 2, 0.25, 0.0625},
		{1, 2, 0.25, 0.4375},
		{3, 4, 0.5, 5. / 16},
		{30, 30, 0.5, math.Pow(0.5, 30)},
		{1, 1000, 0, 0},
		{5, 5, 1, 1},
		{503_000, 1_000_000, 0.5, 9.9e-10},
	} {
		if got := upperTail(test.k, test.n, test.rate); math.Abs(got-test.want) > 0.02*test.want+1e-300 {
			t.Errorf("%d of %d at %g: %g, want %g", test.k, test.n, test.rate, got, test.want)
		}
	}
}

// TestTooMany has bounds grow with the number of trials, to somewhat more than the rate.
func TestTooMany(t *testing.T) {
	for _, test := range []struct {
		n    int64
		rate float64
		most int64 // that is tolerated
	}{{29, 0.5, 29}, {30, 0.5, 29}, {100, 0.2, 47}, {10_000, 0.01, 165}, {5, 1e-3, 3}} {
		if TooMany(test.most, test.n, test.rate) || test.most < test.n && !TooMany(test.most+1, test.n, test.rate) {
			t.Errorf("%d of %d are not the most of %g: %g, %g", test.most, test.n, test.rate,
				upperTail(test.most, test.n, test.rate), upperTail(test.most+1, test.n, test.rate))
		}
	}
	if Judges(29, 0.5) || !Judges(30, 0.5) {
		t.Error("half of 30 can be judged, of 29 cannot")
	}
}

// verdict is a test that ends as AtMost says.
type verdict struct {
	testing.TB
	text string
}

func (v *verdict) Helper()                      {}
func (v *verdict) Failed() bool                 { return false }
func (v *verdict) Errorf(f string, args ...any) { v.text = fmt.Sprintf(f, args...) }
func (v *verdict) Fatal(args ...any)            { v.text = fmt.Sprint(args...); runtime.Goexit() }
func (v *verdict) Skip(args ...any)             { v.text = "skipped: " + fmt.Sprint(args...); runtime.Goexit() }

// TestAtMost wants a lack where there are too few, under the test command a skipped one.
func TestAtMost(t *testing.T) {
	for _, test := range []struct {
		failures, n int64
		later, want string
	}{
		{10, 100, "", ""},
		{80, 100, "", "x: 80 of 100, where 50 % are tolerated"},
		{80, 100, "later", "x: 80 of 100, where 50 % are tolerated"},
		{10, 10, "", "LACK: x: 10 are too few to judge whether 50 % of them may be so"},
		{0, 0, "later", "skipped: LACK: x: 0 are too few to judge whether 50 % of them may be so"},
	} {
		t.Setenv(LackVar, test.later)
		v := &verdict{}
		var judging sync.WaitGroup
		judging.Go(func() { AtMost(v, "x", test.failures, test.n, 0.5) }) // it may end there
		if judging.Wait(); v.text != test.want {
			t.Errorf("%d of %d: %q, want %q", test.failures, test.n, v.text, test.want)
		}
	}
}
