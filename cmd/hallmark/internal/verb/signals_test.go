package verb

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestSignals says for series of signals what they end. A time is in seconds from the start.
func TestSignals(t *testing.T) {
	type came struct {
		at    float64
		sig   os.Signal
		fatal bool
	}
	const (
		intr = syscall.SIGINT
		term = syscall.SIGTERM
		hup  = syscall.SIGHUP
		quit = syscall.SIGQUIT
	)
	for name, test := range map[string]struct {
		promised bool
		signals  []came
	}{
		"timeout(1) sends two":               {true, []came{{5, term, false}, {5.001, term, false}}},
		"of all kinds at once":               {true, []came{{5, hup, false}, {5, term, false}, {5.1, intr, false}, {5.9, intr, false}}},
		"a supervisor that asks each second": {true, []came{{5, term, false}, {6, term, false}, {7, term, false}, {8, hup, false}}},
		"Ctrl-C again":                       {true, []came{{5, intr, false}, {5.2, intr, false}, {6, intr, true}}},
		"Ctrl-C after SIGTERM":               {true, []came{{5, term, false}, {9, intr, true}}},
		"Ctrl-\\ again":                      {true, []came{{5, quit, false}, {5.2, quit, false}, {6, quit, true}}},
		"nothing is promised":                {false, []came{{5, term, false}, {5.5, term, false}, {6, term, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &signals{works: map[*work]bool{}}
			s.listen.Do(func() {}) // these come from nowhere
			ctx, over := s.begin(&work{promised: test.promised})
			start := time.Now()
			for _, c := range test.signals {
				if got := s.take(c.sig, start.Add(time.Duration(c.at*float64(time.Second)))); got != c.fatal {
					t.Errorf("%v after %v s ends the process: %v, want %v", c.sig, c.at, got, c.fatal)
				}
				if ctx.Err() != context.Canceled {
					t.Errorf("after %v the context goes on", c.sig)
				}
			}
			over()
			if !s.take(term, start.Add(time.Minute)) {
				t.Error("with nothing to end, SIGTERM does not end the process")
			}
		})
	}
}

// TestSignalForWorkAfterAnother shows a view of a recording that Ctrl-C has ended, by two
// signals: the second one is not for the view.
func TestSignalForWorkAfterAnother(t *testing.T) {
	s := &signals{works: map[*work]bool{}}
	s.listen.Do(func() {})
	_, over := s.begin(&work{promised: true})
	start := time.Now()
	s.take(syscall.SIGINT, start)
	over()
	view, over := s.begin(&work{})
	defer over()
	if s.take(syscall.SIGINT, start.Add(time.Second/2)) || view.Err() != nil {
		t.Error("the same Ctrl-C ends the view as well")
	}
	if s.take(syscall.SIGINT, start.Add(2*time.Second)) || view.Err() == nil {
		t.Error("the next Ctrl-C does not end the view in good order")
	}
}
