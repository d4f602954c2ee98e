package capture

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestLostIsCounted lets the ring of a busy process overflow before it is read,
// and wants the loss to be counted and to stand in the profile.
func TestLostIsCounted(t *testing.T) {
	needPerf(t)
	pid := start(t, buildC(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := startSession(t, Options{
		PIDs:      []int{pid},
		Frequency: 20_000,
		Progress: func(_ time.Duration, seen Stats) {
			if seen.Lost > 0 {
				cancel()
			}
			time.Sleep(500 * time.Millisecond) // a reader that is far too slow
		},
	})
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r := s.Finish()
	if s.Stats().Lost == 0 {
		t.Errorf("%d samples, and none were lost", s.Stats().Samples)
	}
	if len(r.Profile.Comments) != 1 || !strings.Contains(r.Profile.Comments[0], "records were lost") {
		t.Errorf("the profile says %q", r.Profile.Comments)
	}
}
