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
	s := startSession(t, Options{PIDs: []int{pid}, Frequency: 20_000, Duration: 100 * time.Millisecond})
	time.Sleep(time.Second)
	if err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if s.Stats().Lost == 0 {
		t.Errorf("%d samples, and none were lost", s.Stats().Samples)
	}
	if len(r.Profile.Comments) != 1 || !strings.Contains(r.Profile.Comments[0], "records were lost") {
		t.Errorf("the profile says %q", r.Profile.Comments)
	}
}
