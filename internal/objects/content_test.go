package objects

import (
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/reach"
)

// TestOtherStates wants a file that changed to be another one than before, unless only the time of
// its inode is another and nobody else can have written it.
func TestOtherStates(t *testing.T) {
	state := func(trusted bool, v bpf.Validity) *Reading {
		return &Reading{Object: &Object{Key: reach.Key{Content: v}, trusted: trusted}}
	}
	first := bpf.Validity{Inode: 7, Size: 9, Mtime: bpf.Time{Sec: 1}, Ctime: bpf.Time{Sec: 2}, Pinned: 4}
	again, renamed, written := first, first, first
	again.Pinned = reach.AnyMapping
	renamed.Ctime.Sec++
	written.Mtime.Sec++
	for _, c := range []struct {
		v       bpf.Validity
		trusted bool
		want    bool
	}{
		{again, false, false}, {renamed, true, false}, {renamed, false, true}, {written, true, true}, {bpf.Validity{}, false, false},
	} {
		if got := state(c.trusted, c.v).IsOtherState(state(c.trusted, first)); got != c.want {
			t.Errorf("%+v (trusted: %v) is another state: %v", c.v, c.trusted, got)
		}
	}
}
