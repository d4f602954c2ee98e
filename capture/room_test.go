package capture

import (
	"os"
	"testing"
	"time"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/quota"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/reason"
)

// newRoomTracker returns a tracker that has room for so many bytes of others' processes.
func newRoomTracker(t *testing.T, room int64) *tracker {
	t.Helper()
	set := objects.New()
	t.Cleanup(set.Close)
	set.SetRoom(quota.New(room, 0))
	return &tracker{tally: &tally{objects: set}, processes: map[uint32]*process{}, threads: map[uint32]string{}}
}

// Numbers that no process and no user of a test has.
const (
	noProcess = 1 << 23
	greedy    = 1 << 30
	modest    = greedy + 1
)

// startOf returns a process of a user.
func startOf(t *tracker, pid, user uint32) *process {
	p := t.newProcess(pid, 1, "p")
	p.Account = user
	t.put(p)
	return p
}

// mapMany maps pages of generated code one by one, as long as they are kept.
func mapMany(t *tracker, p *process, n int) (kept int) {
	for i := range n {
		t.mmap(&perfdata.Mmap2{Owner: p.PID, Start: addr.Abs(i+1) << 13, Size: 1 << 12, Prot: perfdata.ProtExec, Name: "//anon"})
		if p.space.IsEmpty() {
			return i
		}
	}
	return n
}

// TestRoomForMappings has processes of one user map, fork and execute very much. A process that is beyond the
// share of its user loses its own mappings, with a reason, and no other one does. A process that ends gives its room back.
func TestRoomForMappings(t *testing.T) {
	const room = 2000
	tr := newRoomTracker(t, room*mappingBytes)
	if first := startOf(tr, noProcess, greedy); mapMany(tr, first, 100) != 100 {
		t.Fatal("a process within the share loses mappings")
	}
	big := startOf(tr, noProcess+1, greedy)
	if n := mapMany(tr, big, 2*room); n < room/4 || n > room/2 || big.unknown != reason.NotRead || big.held != 0 {
		t.Errorf("%d mappings were kept and then none (%v), %d bytes are held; want about %d", n, big.unknown, big.held, room/2)
	}
	if at := tr.userPlace(big, &big.space, 0x2000); at.object.Facts().Why != reason.NotRead {
		t.Errorf("a frame there: %v", at.object.Facts().Why)
	}
	if p := tr.processes[noProcess]; p.space.Len() != 100 || p.unknown != reason.None {
		t.Errorf("a small process of that user has %d mappings (%v)", p.space.Len(), p.unknown)
	}
	if p := startOf(tr, noProcess+2, modest); mapMany(tr, p, 200) != 200 {
		t.Error("a process of another user loses mappings")
	}
	if p := startOf(tr, noProcess+3, 0); mapMany(tr, p, 2*room) != 2*room {
		t.Error("a process of root loses mappings")
	}
	children := 0
	for pid := uint32(noProcess + 100); pid < noProcess+200; pid++ {
		tr.fork(&perfdata.Task{ParentPID: noProcess, ParentTID: noProcess, ChildPID: pid, ChildTID: pid, ID: perfdata.ID{Time: 2}})
		if p := tr.processes[pid]; p.unknown == reason.None {
			children++
		} else if !p.space.IsEmpty() || p.unknown != reason.NotRead {
			t.Errorf("a child has %d mappings (%v)", p.space.Len(), p.unknown)
		}
	}
	if children < 5 || children > 9 {
		t.Errorf("%d children share 100 mappings, want about 8", children)
	}
	for pid := uint32(noProcess + 100); pid < noProcess+150; pid++ {
		tr.exit(&perfdata.Task{Exited: true, ChildPID: pid, ChildTID: pid, ID: perfdata.ID{Time: 3}})
	}
	for pid := uint32(noProcess + 150); pid < noProcess+200; pid++ {
		tr.comm(&perfdata.Comm{OwnerPID: pid, OwnerTID: pid, Exec: true, ID: perfdata.ID{Time: 3}})
	}
	tr.reap(perfring.Monotonic() + uint64(time.Hour))
	if n := mapMany(tr, startOf(tr, noProcess+4, greedy), room/2); n < room/4 {
		t.Errorf("%d mappings were kept after others ended, want about %d", n, room/2)
	}
}

// TestRoomForFresh has mappings be read again that have to wait for the time of the records.
func TestRoomForFresh(t *testing.T) {
	tr := newRoomTracker(t, 100*mappingBytes)
	p := startOf(tr, noProcess, greedy)
	p.fresh, p.freshAsOf = make([]mapping, 80), 5
	p.settle()
	if p.held != 80*mappingBytes {
		t.Errorf("%d bytes are held, want those of 80 mappings", p.held)
	}
	q := startOf(tr, noProcess+1, greedy)
	q.fresh, q.freshAsOf = make([]mapping, 80), 5
	if q.settle(); q.fresh != nil || q.freshAsOf != 0 || q.unknown != reason.NotRead {
		t.Errorf("%d mappings wait beyond the share (%v)", len(q.fresh), q.unknown)
	}
}

// TestRoomOfNewUser has a process become another user's without executing a program.
func TestRoomOfNewUser(t *testing.T) {
	tr := newRoomTracker(t, 1<<30)
	p := startOf(tr, uint32(os.Getpid()), greedy)
	p.fresh = make([]mapping, 2*askedEach/mappingBytes)
	if p.settle(); p.Account != uint32(os.Geteuid()) {
		t.Errorf("its room is user %d's, want %d's", p.Account, os.Geteuid())
	}
}

// TestStockShares wants processes of a user without a share to have a reason, and root's to be known.
func TestStockShares(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	root := proctest.Start(t, "sleep", "3600")
	other := proctest.Start(t, "setpriv", "--reuid", "65534", "--clear-groups", "sleep", "3600")
	testenv.Await(t, "another user", func() bool { return procfs.UserOf(uint32(other)) == 65534 })
	for name, c := range map[string]struct{ bytes, time int64 }{
		"no memory": {0, int64(time.Hour)},
		"no time":   {1 << 30, 0},
	} {
		tr := newRoomTracker(t, c.bytes)
		s := &perfSampler{tally: tr.tally, tracker: tr}
		found := s.readProcesses(t.Context(), []int{root, other}, quota.New(c.time, 0))
		if found[0].unknown != reason.None || found[0].space.IsEmpty() {
			t.Errorf("%s: root's process has %d mappings (%v)", name, found[0].space.Len(), found[0].unknown)
		}
		if found[1].unknown != reason.NotRead || !found[1].space.IsEmpty() {
			t.Errorf("%s: another one has %d mappings (%v)", name, found[1].space.Len(), found[1].unknown)
		}
	}
}

// TestLooksHaveShares has samples want looks at processes of a user whose time is up.
func TestLooksHaveShares(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	other := uint32(proctest.Start(t, "setpriv", "--reuid", "65534", "--clear-groups", "sleep", "3600"))
	testenv.Await(t, "another user", func() bool { return procfs.UserOf(other) == 65534 })
	tr := newRoomTracker(t, 1<<30)
	tr.looks.Spend(65534, time.Hour)
	if p := tr.process(other); p.unknown != reason.NotRead {
		t.Errorf("a process that no record reported: %v", p.unknown)
	}
	doubted := startOf(tr, other, 65534)
	doubted.doubted = true
	tr.ask(doubted)
	if why := doubted.unknownAt(perfring.Monotonic()); why != reason.NotRead {
		t.Errorf("a process whose records were lost: %v", why)
	}
	if p := tr.process(uint32(os.Getpid())); p.unknown != reason.None || p.space.IsEmpty() {
		t.Errorf("a process of root: %v", p.unknown)
	}
}
