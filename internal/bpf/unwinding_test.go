package bpf

import (
	"testing"

	"hallmark/unwind"
)

// TestUnfinished samples itself without tables, and wants each sample to be finished by
// whoever takes it.
func TestUnfinished(t *testing.T) {
	s := newTestSampler(t, Options{Unwind: true})
	got := sampleSelf(t, s)
	stats := statsOf(t, s)
	t.Logf("%+v", stats)
	if len(got.copies) == 0 || uint64(len(got.copies)) != stats.Copies {
		t.Fatalf("%d copies, %+v", len(got.copies), stats)
	}
	for _, c := range got.copies {
		if c.Counted || got.ends[c.Stack] != unwind.NoTable {
			t.Fatalf("%+v: %v", c, got.ends[c.Stack])
		}
		frames := got.stacks[c.Stack]
		last := frames[len(frames)-1]
		space := got.spaces[c.Space]
		if space == nil {
			t.Fatalf("no space: %+v", c)
		}
		_ = last
	}
	for _, p := range got.spaces {
		for _, a := range p.Areas {
			t.Logf("%x-%x %d %d %x", a.Start, a.End, a.Kind, a.Serial, a.Base)
		}
		t.Log(p.Cut)
	}
}
