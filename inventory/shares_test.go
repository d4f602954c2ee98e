package inventory

import (
	"fmt"
	"testing"
	"time"

	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

// TestPool wants one greedy user to get half, two to get a third each, and a modest one what it asks for.
func TestPool(t *testing.T) {
	const all = 120_000
	for greedy := 1; greedy <= 5; greedy++ {
		p := pool{left: all}
		for range all {
			for user := range greedy {
				if p.has(uint32(user)) {
					p.take(uint32(user), 1)
				}
			}
		}
		want := int64(all / (greedy + 1))
		for user := range greedy {
			if got := p.taken[uint32(user)]; got < want-1 || got > want+1 {
				t.Errorf("%d users: one has %d of %d, want %d", greedy, got, all, want)
			}
		}
		for range all / (greedy + 2) / 2 {
			if !p.has(99) {
				t.Fatalf("%d users left nothing for another one", greedy)
			}
			p.take(99, 1)
		}
	}
}

// TestPoolOneAfterTheOther has greedy users come one after the other: a late one still has the floor, and
// all together take no more than the pool and the floors.
func TestPoolOneAfterTheOther(t *testing.T) {
	const all, floor = 1 << 20, 1000
	p := &pool{left: all, floor: floor}
	sum := int64(0)
	for user := range uint32(2 * maxFloors) {
		for p.has(user) {
			p.take(user, 1)
		}
		if got := p.taken[user]; user < maxFloors && got < floor {
			t.Errorf("user %d has %d, want %d at least", user, got, floor)
		}
		sum += p.taken[user]
	}
	if sum > all+maxFloors*floor {
		t.Errorf("all took %d", sum)
	}
}

// TestMeter wants the mappings of a process to be bounded, whoever it is of, and what another user's take,
// with each name once.
func TestMeter(t *testing.T) {
	add := func(m *meter, most int) (n int) {
		for n < most && m.add(procmap.VMA{Name: "/one"}) {
			n++
		}
		return n
	}
	m := &meter{shares: newShares(), names: map[string]bool{}} // root's
	if n := add(m, 2*maxMappings); n != maxMappings {
		t.Errorf("%d mappings of root's process, want %d", n, maxMappings)
	}
	const room = 1000
	s := &shares{bytes: pool{left: room * mappingBytes}}
	m = &meter{shares: s, user: 1, names: map[string]bool{}}
	if n, slack := add(m, room), int(atOnce/mappingBytes)+2; n < room/2-slack || n > room/2+2*slack {
		t.Errorf("%d mappings of a user, want about %d", n, room/2)
	}
	if m.settle() {
		t.Error("a user has more than a share")
	}
	m = &meter{shares: s, user: 2, names: map[string]bool{}}
	if n := add(m, room/10); n != room/10 || !m.settle() {
		t.Errorf("%d mappings of another user, want %d", n, room/10)
	}
	m.add(procmap.VMA{Name: fmt.Sprintf("/%0*d", 2*atOnce, 0)})
	if m.due != 0 {
		t.Errorf("a long name was not counted: %d", m.due)
	}
}

// TestShares wants processes of a user without a share to be left out with a reason, and root's to be seen.
func TestShares(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	root := proctest.Start(t, "sleep", "3600")
	other := proctest.Start(t, "setpriv", "--reuid", "65534", "--clear-groups", "sleep", "3600")
	testenv.Await(t, "another user", func() bool {
		_, path := procfs.ProgramOf(other)
		_, sleep := procfs.ProgramOf(root)
		return procfs.UserOf(uint32(other)) == 65534 && path == sleep
	})
	proctest.AwaitMappings(t, []int{root, other})
	for what, s := range map[string]*shares{
		"no memory": {time: pool{left: int64(time.Hour)}},
		"no time":   {bytes: pool{left: maxBytes}},
	} {
		for _, source := range []Source{Query, Text} {
			inv := &Inventory{Source: source, shares: s}
			inv.takeFromProc([]int{root, other}, time.Minute)
			if len(inv.Processes) != 1 || inv.Processes[0].PID != root || len(inv.Processes[0].Code) == 0 {
				t.Errorf("%s: the processes %+v, want %d", what, inv.Processes, root)
			}
			if len(inv.Unseen) != 1 || inv.Unseen[0] != (Unseen{other, reason.NotRead}) {
				t.Errorf("%s: unseen are %+v, want %d", what, inv.Unseen, other)
			}
		}
	}
	inv, err := Take(Options{PIDs: []int{root, other}})
	if err != nil || len(inv.Processes) != 2 {
		t.Fatalf("got %+v, %v", inv, err)
	}
	inv.shares = &shares{bytes: pool{left: maxBytes}}
	inv.LookAtDisk()
	for _, p := range inv.Processes {
		want := DiskSame
		if p.PID == other {
			want = DiskUnknown
		}
		if p.Program < 0 || p.Code[p.Program].Disk != want {
			t.Errorf("process %d without time: %+v, want %v", p.PID, p, want)
		}
	}
}
