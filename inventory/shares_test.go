package inventory

import (
	"fmt"
	"testing"
	"time"

	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/quota"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

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
	s := newShares()
	s.bytes = quota.New(room*mappingBytes, 0)
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
		"no memory": {bytes: quota.New(0, 0), time: quota.New(int64(time.Hour), 0)},
		"no time":   {bytes: quota.New(maxBytes, 0), time: quota.New(0, 0)},
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
	inv.shares = &shares{bytes: quota.New(maxBytes, 0), time: quota.New(0, 0)}
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
