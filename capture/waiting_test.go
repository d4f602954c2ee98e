package capture

import (
	"os"
	"testing"
	"time"

	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/quota"
	"hallmark/internal/rewrites"
	"hallmark/internal/unwindtables"
	"hallmark/unwind"
)

// neverTables has tables that are always still to come.
type neverTables struct{}

func (neverTables) Table(*objects.Object) (*unwind.Table, bool) { return nil, false }

// newWaitingStacks returns what unwinds copied stacks, with room for so many bytes of others' samples.
func newWaitingStacks(t *testing.T, room int64) *userStacks {
	t.Helper()
	tr := newRoomTracker(t, 1<<30)
	tr.stacks, tr.rewrites = newStacks(), rewrites.New(tr.objects, &tr.looks)
	t.Cleanup(tr.rewrites.Close)
	u := newUserStacks(tr, neverTables{}, DefaultStackSize)
	u.room.others = quota.New(room, 0)
	return u
}

// wait has samples in a process wait, each of which sees another mapping than the one before, and returns how
// many samples of its user wait then.
func wait(u *userStacks, p *process, samples int) (waiting int) {
	for range samples {
		one := &unfinished{process: p}
		if u.makeRoom(one) {
			u.waiting = append(u.waiting, one)
		}
		p.settle()
	}
	for _, one := range u.waiting {
		if one.user == p.Account {
			waiting++
		}
	}
	return waiting
}

// TestRoomForWaiting has samples wait in a process with very many mappings, which change: those that wait keep
// the mappings as they were. Samples beyond the share of their user are finished without their table, the oldest first.
func TestRoomForWaiting(t *testing.T) {
	const mapped, fit = 1000, 10
	u := newWaitingStacks(t, 2*fit*(mapped*mappingBytes+waitingSize))
	few, many := startOf(u.tracker, noProcess, modest), startOf(u.tracker, noProcess+1, greedy)
	mapMany(u.tracker, few, 1)
	mapMany(u.tracker, many, mapped)
	if n := wait(u, few, 3); n != 3 {
		t.Errorf("%d samples of a modest user wait, want 3", n)
	}
	if n := wait(u, many, 3*fit); n < fit-1 || n > fit+1 {
		t.Errorf("%d samples of a greedy user wait, want about %d", n, fit)
	}
	if n := wait(u, few, 0); n != 3 {
		t.Errorf("%d samples of a modest user still wait, want 3", n)
	}
	if n := wait(u, startOf(u.tracker, noProcess+2, 0), 3*fit); n != 3*fit {
		t.Errorf("%d samples of root wait, want %d", n, 3*fit)
	}
	for len(u.waiting) > 0 {
		u.shed(u.waiting[0].user)
	}
	if u.room.held != 0 || u.shed(greedy) {
		t.Errorf("%d bytes are held at the end", u.room.held)
	}
	if n := wait(u, many, 3*fit); n < fit-1 {
		t.Errorf("%d samples of the greedy user wait afterwards, want about %d", n, fit)
	}
}

// TestSharedSpaceCountsOnce has samples wait that see the same mappings.
func TestSharedSpaceCountsOnce(t *testing.T) {
	u := newWaitingStacks(t, 0)
	p := startOf(u.tracker, noProcess, 0)
	mapMany(u.tracker, p, 100)
	for range 5 {
		u.makeRoom(&unfinished{process: p})
	}
	if want := 5*waitingSize + 100*mappingBytes; u.room.held != want {
		t.Errorf("%d bytes are held, want %d", u.room.held, want)
	}
}

// TestRoomForSpaces has the kernel report more address spaces of other users' processes than there is room for.
func TestRoomForSpaces(t *testing.T) {
	space := func(id uint64, pid uint32) *bpf.Space {
		return &bpf.Space{ID: id, PID: pid, VMAs: make([]bpf.VMA, 100)}
	}
	u := newUnwinding(&bpfSampler{}, nil)
	u.spaceRoom = quota.New(10*spaceBytes(space(0, 0)), 0)
	keep := func(first uint64, pid uint32) (kept int) {
		for id := first; id < first+20; id++ {
			if u.keepSpace(space(id, pid)); u.space(id) != nil {
				kept++
			}
		}
		return kept
	}
	if n := keep(100, noProcess); n < 5 || n > 6 || !u.full() {
		t.Errorf("%d spaces are kept, want about 5; time to forget: %v", n, u.full())
	}
	if n := keep(200, uint32(os.Getpid())); n != 20 {
		t.Errorf("%d spaces of this user are kept, want 20", n)
	}
	u.forget()
	if n := keep(300, noProcess); n > 3 || u.full() {
		t.Errorf("%d spaces are kept beside older ones; time to forget: %v", n, u.full())
	}
	if u.forgot = time.Now().Add(-2 * forgetEach); !u.full() {
		t.Error("spaces that are left out are never asked for again")
	}
	u.forget()
	if u.forget(); u.space(100) != nil || keep(400, noProcess) < 5 {
		t.Error("no room after all spaces were forgotten")
	}
}

// TestRoomForCopies has samples of processes of several users wait for a table that does not come.
func TestRoomForCopies(t *testing.T) {
	u := newUnwinding(&bpfSampler{}, &unwindtables.Supply{})
	u.room.others = quota.New(20*waitingSize, 0)
	keep := func(user uint32) (kept int) {
		for range 20 {
			if u.keep(&copiedSample{user: user, space: &bpf.Space{}}) {
				kept++
			}
		}
		return kept
	}
	if n := keep(greedy); n < 8 || n > 11 {
		t.Errorf("%d samples of a greedy user wait, want about 10", n)
	}
	if n := keep(0); n != 20 {
		t.Errorf("%d samples of root wait, want 20", n)
	}
	u.room.held = maxWaiting
	if keep(0) != 0 {
		t.Error("samples of root have no bound")
	}
}
