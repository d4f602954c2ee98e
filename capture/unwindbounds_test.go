package capture

import (
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/reach"
	"hallmark/internal/unwindtables"
	"hallmark/unwind"
)

// walkIn walks a stack with two frames, and nothing in registers but the stack pointer and
// where it is.
func walkIn(t *testing.T, space *bpf.Space, tables *unwindtables.Supply) (end unwind.End, u *unwinding) {
	t.Helper()
	u = newUnwinding(&bpfSampler{}, tables)
	u.compared = func(_ bpf.StackID, _ []bpf.Frame, e unwind.End) { end = e }
	one := &copiedSample{counted: true, space: space, state: unwind.State{IP: 0x5000, Exact: true, Method: unwind.ByRegs}}
	one.walker = unwind.Walker{Machine: unwind.X86_64, Memory: &one.memory}
	u.walk(one)
	return end, u
}

// TestCutSpace looks for a place in the executable memory of a process of which not all is
// told: behind what is told it may be mapped, before that it is not.
func TestCutSpace(t *testing.T) {
	before := bpf.VMA{Start: 0x1000, End: 0x2000, Kind: bpf.Generated}
	behind := bpf.VMA{Start: 0x7000, End: 0x8000, Kind: bpf.Generated}
	for _, c := range []struct {
		areas []bpf.VMA
		cut   bool
		want  unwind.End
	}{
		{[]bpf.VMA{before}, true, unwind.NotIdentified},
		{nil, true, unwind.NotIdentified},
		{[]bpf.VMA{before}, false, unwind.NotMapped},
		{[]bpf.VMA{before, behind}, true, unwind.NotMapped},
	} {
		if end, _ := walkIn(t, &bpf.Space{VMAs: c.areas, Cut: c.cut}, nil); end != c.want {
			t.Errorf("areas %v, cut %v: it ends %d, not %d", c.areas, c.cut, end, c.want)
		}
	}
}

// TestWaitingCounts has a sample wait of whose stack nothing was copied: it takes room all the
// same, and gives it back.
func TestWaitingCounts(t *testing.T) {
	set := objects.New()
	defer set.Close()
	tables := unwindtables.NewSupply(set, noKernel{}, unwindtables.Cache{})
	defer tables.Stop()
	o := set.File(reach.Key{Inode: 1}, reach.VMAOf(&bpf.File{Path: "/no/such/file"}), 0)
	tables.Expect(o) // and nothing comes of it
	tables.Introduce(1, o, nil)
	_, u := walkIn(t, &bpf.Space{VMAs: []bpf.VMA{{Start: 0x4000, End: 0x6000, Kind: bpf.InFile, Serial: 1}}}, tables)
	if len(u.waiting[1]) != 1 || u.room.held < waitingSize {
		t.Errorf("%d samples wait, and take %d bytes", len(u.waiting[1]), u.room.held)
	}
	tables.Reached(o)
	u.goOn(true)
	if len(u.waiting) != 0 || u.room.held != 0 {
		t.Errorf("%d samples wait, and take %d bytes", len(u.waiting[1]), u.room.held)
	}
	copied := &userStacks{waiting: []*unfinished{{stack: make([]byte, 10)}}}
	if n := copied.waiting[0].held(); n != waitingSize+10 {
		t.Errorf("a sample with 10 bytes of stack takes %d", n)
	}
}
