package capture

import (
	"context"
	"errors"
	"os"
	"testing"

	"hallmark/internal/proctest"
	"hallmark/reason"
)

// TestContextEnds gives each call that may take seconds a context that is done.
func TestContextEnds(t *testing.T) {
	needPerf(t)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, b := range []Backend{Perf, BPF} {
		if s, err := Start(done, Options{PIDs: []int{os.Getpid()}, Backend: b}); s != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v: Start = %v, %v", b, s, err)
		}
		s, err := Start(t.Context(), Options{PIDs: []int{os.Getpid()}, Backend: b})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Run(done); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Finish(done); r != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v: Finish = %v, %v", b, r, err)
		}
		if r, err := s.Finish(t.Context()); r != nil || !errors.Is(err, errFinished) {
			t.Errorf("%v: a second Finish = %v, %v", b, r, err)
		}
	}
	r := recordUnnamed(t, proctest.BuildC(t))
	misses, err := r.Symbolize(done)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Symbolize: %v", err)
	}
	unasked := 0
	for _, why := range misses {
		if why == reason.NotLookedUp {
			unasked++
		}
	}
	if unasked == 0 {
		t.Errorf("none of %d misses is %v", len(misses), reason.NotLookedUp)
	}
	if misses, err = r.Symbolize(t.Context()); err != nil {
		t.Error(err)
	}
	for l, why := range misses {
		if why == reason.NotLookedUp && l.Mapping != nil && l.Mapping.BuildID != "" && l.Mapping.File[0] == '/' {
			t.Errorf("%s was not looked up: %v", l.Mapping.File, why)
		}
	}
}
