package cli

import (
	"testing"
	"time"

	"hallmark/capture"
)

// TestUnsampled notes what a timer of each process misses, and nothing that is noise.
func TestUnsampled(t *testing.T) {
	for _, test := range []struct {
		way          capture.Backend
		sampled, ran time.Duration
		want         bool
	}{
		{capture.Perf, 0, 3 * time.Second, true},
		{capture.Perf, time.Second, 3 * time.Second, true},
		{capture.Perf, 2 * time.Second, 3 * time.Second, false},
		{capture.Perf, 0, 90 * time.Millisecond, false}, // it was short
		{capture.Perf, time.Second, 0, false},           // it has not ended
		{capture.BPF, 0, 3 * time.Second, false},
	} {
		if note := unsampled(test.way, test.sampled, test.ran); (note != "") != test.want {
			t.Errorf("%v, %v sampled of %v: %q", test.way, test.sampled, test.ran, note)
		}
	}
}

func TestWaitedText(t *testing.T) {
	for _, test := range []struct {
		used, whole time.Duration
		want        string
	}{
		{30 * time.Millisecond, 2050 * time.Millisecond, "it was on a CPU for 1.5% of 2.05s, and waited else: samples do not show that"},
		{0, time.Minute, "it was on a CPU for 0% of 60.00s, and waited else: samples do not show that"},
		{time.Second, 2 * time.Second, ""},
		{9 * time.Second, 2 * time.Second, ""}, // on several CPUs
	} {
		if got := waitedText("it was", test.used, test.whole); got != test.want {
			t.Errorf("%v of %v: %q, want %q", test.used, test.whole, got, test.want)
		}
	}
}
