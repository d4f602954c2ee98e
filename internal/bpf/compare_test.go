package bpf

import (
	"fmt"
	"testing"

	"hallmark/internal/testenv"
)

// TestComparison lets all ways look at this program. The frames that were looked at
// in both ways must all have a place and a status; those of a Go program have an
// address only, and nearly all are in its code: a few can be in the C library, which
// the race detector brings along.
func TestComparison(t *testing.T) {
	testenv.Root(t)
	c, err := NewComparison()
	testenv.Need(t, err == nil, "a kernel that takes the BPF programs")
	defer c.Close()
	costs, err := CountCosts()
	if err != nil {
		t.Fatal(err)
	}
	defer costs.Close()
	var attaches []func(int) error
	ways := []Way{Addresses, BuildIDs, StackIDs, Offsets, Both}
	for _, w := range ways {
		attaches = append(attaches, func(event int) error { return c.Attach(w, event) })
	}
	spinSampled(t, attaches...)
	for _, w := range ways {
		if cost, err := c.Cost(w); err != nil || cost.Runs == 0 || cost.Time == 0 {
			t.Errorf("way %d: %+v, %v", w, cost, err)
		}
	}
	f, err := c.Frames()
	if err != nil {
		t.Fatal(err)
	}
	all := f.All()
	if f.Stacks > 0 && (all.All() < f.Stacks || f.Code.IP == 0) {
		t.Errorf("frames: %+v", f)
	}
	testenv.AtMost(t, fmt.Sprintf("frames that are not in Go code (%+v)", f), int64(all.All()-f.Code.IP), int64(all.All()), 0.1)
}
