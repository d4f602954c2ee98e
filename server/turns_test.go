package server

import (
	"errors"
	"testing"

	"hallmark/web"
)

// TestTurnsByClient has one client whose answers nobody reads: it keeps no other one from the pages.
func TestTurnsByClient(t *testing.T) {
	s, _ := start(t, nil)
	turns := s.viewer.turns
	for _, kind := range []struct {
		name string
		take func(*exchange) (func(), error)
	}{
		{"downloads", func(e *exchange) (func(), error) { return turns.Download(e) }},
		{"answers", func(e *exchange) (func(), error) { return turns.Unsent(e, web.MaxUnsent/16) }},
	} {
		greedy, other := &exchange{client: "greedy"}, &exchange{client: "other"}
		var back []func()
		for {
			done, err := kind.take(greedy)
			if err != nil {
				if !errors.Is(err, web.ErrBusy) {
					t.Error(err)
				}
				break
			}
			if back = append(back, done); len(back) > 100 {
				t.Fatalf("%s: one client has all it wants", kind.name)
			}
		}
		if len(back) < 2 {
			t.Errorf("%s: a client alone has %d", kind.name, len(back))
		}
		for range len(back) / 2 {
			done, err := kind.take(other)
			if err != nil {
				t.Errorf("%s: another client is kept from them: %v", kind.name, err)
				continue
			}
			back = append(back, done)
		}
		for _, done := range back {
			done()
		}
	}
	if n := turns.unsent.inUse() + turns.downloads.inUse(); n != 0 {
		t.Errorf("%d stay taken", n)
	}
}
