package testenv

import (
	"fmt"
	"testing"
)

// recorder is a test that notes its failures.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

var sink int

// TestYardstick compares work with the same work, and with a hundred times as much.
func TestYardstick(t *testing.T) {
	spin := func(n int) func() {
		return func() {
			for i := range n {
				sink += i * sink
			}
		}
	}
	const n = 2_000_000
	r := &recorder{TB: t}
	y := &Yardstick{Harmless: spin(n), Times: 10}
	if y.Check(r, "as much", spin(n)); len(r.failed) != 0 {
		t.Errorf("as much work fails: %q", r.failed)
	}
	if y.Check(r, "more", spin(100*n)); len(r.failed) != 1 {
		t.Errorf("a hundred times as much work fails %d times", len(r.failed))
	}
}
