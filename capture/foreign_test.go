package capture

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"hallmark/internal/aside"
	"hallmark/internal/fusetest"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/inventory"
	"hallmark/reason"
)

// mountWith mounts a file system of FUSE with a copy of a program in it.
func mountWith(t *testing.T, program string) (s *fusetest.Server, path string) {
	t.Helper()
	s = fusetest.Mount(t, fusetest.SSHFS)
	if msg, err := exec.Command("cp", program, s.Behind("busy")).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, msg)
	}
	old := time.Now().Add(-time.Minute) // the server has whole seconds only
	if err := os.Chtimes(s.Behind("busy"), old, old); err != nil {
		t.Fatal(err)
	}
	return s, s.Path("busy")
}

// TestForeignFile records a program of a file system that another process serves, and wants its
// identity and its symbols as of any other; so does an inventory.
func TestForeignFile(t *testing.T) {
	testenv.Root(t)
	busy := proctest.BuildC(t)
	_, path := mountWith(t, busy)
	eachBackend(t, func(t *testing.T, b Backend) {
		p, misses, _ := recordCommand(t, Options{Backend: b}, path, "300")
		n := samplesIn(p, "burn")[proctest.FileID(t, busy)]
		if n == 0 && slices.Contains(slices.Collect(maps.Values(misses)), reason.FileUnresponsive) {
			testenv.Lack(t, "the server did not answer in time")
		}
		if n == 0 {
			t.Errorf("no sample is in burn of %v:\n%v", proctest.FileID(t, busy), p)
		}
	})
	pid := proctest.Start(t, path, "3600000")
	proctest.AwaitProgram(t, pid, path)
	for _, source := range []inventory.Source{inventory.Query, inventory.Text, inventory.Iterator} {
		var r inventory.Process
		var c inventory.Code
		testenv.Await(t, "an answer by "+source.String(), func() bool {
			inv, err := inventory.Take(inventory.Options{PIDs: []int{pid}, Source: source})
			if errors.Is(err, patience.ErrSilent) { // the iterator runs through all processes, and one lets nobody look
				return false
			}
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			inv.LookAtDisk()
			r = inv.Processes[0]
			c = r.Code[max(r.Program, 0)]
			return c.Reason != reason.FileUnresponsive // its server had no CPU time for an answer
		})
		if r.Program < 0 || c.ID != proctest.FileID(t, busy) || c.Disk != inventory.DiskSame || c.DirEntry != (inventory.DirEntry{}) && c.Elsewhere {
			t.Errorf("%s: %+v", source, r)
		}
	}
}

// TestSilentServer takes stock of a program on a file system that does not answer, and samples it.
func TestSilentServer(t *testing.T) {
	testenv.Root(t)
	busy := proctest.BuildC(t)
	s, path := mountWith(t, busy)
	pid := proctest.Start(t, path, "3600000")
	other := proctest.Start(t, busy, "3600000")
	proctest.AwaitProgram(t, pid, path)
	proctest.AwaitProgram(t, other, busy)
	proctest.AwaitBurning(t, pid) // a fault that waits for the server later would hold the lock of its mappings
	s.Silence()
	began := time.Now()
	inv, err := inventory.Take(inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inv.LookAtDisk()
	seen := map[int]inventory.Code{}
	for _, p := range inv.Processes {
		seen[p.PID] = p.Code[max(p.Program, 0)]
	}
	if c := seen[other]; c.ID != proctest.FileID(t, busy) || c.Disk != inventory.DiskSame {
		t.Errorf("a program on a disk: %+v", c)
	}
	// The kernel may have the page that the identity is in.
	if c := seen[pid]; c.ID.IsZero() && c.Reason != reason.FileUnresponsive || !c.ID.IsZero() && c.ID != proctest.FileID(t, busy) {
		t.Errorf("a program there: %+v", c)
	}
	eachBackend(t, func(t *testing.T, b Backend) {
		p, _, _ := recordUntil(t, Options{Backend: b, PIDs: []int{pid, other}}, 100)
		if n := samplesIn(p, "burn")[proctest.FileID(t, busy)]; n == 0 {
			t.Errorf("no sample is in burn")
		}
	})
	t.Logf("%v", time.Since(began))
}

// TestNoHelper wants no process to be started where all file systems answer by themselves.
func TestNoHelper(t *testing.T) {
	busy := proctest.BuildC(t)
	pid := proctest.Start(t, busy, "3600000")
	proctest.AwaitProgram(t, pid, busy)
	foreign := mounts.Foreign() // another test's, maybe
	before := aside.Started()
	for _, source := range []inventory.Source{inventory.Query, inventory.Text} {
		inv, err := inventory.Take(inventory.Options{PIDs: []int{pid}, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		inv.LookAtDisk()
		if r := inv.Processes[0]; r.Program < 0 || r.Code[r.Program].Disk != inventory.DiskSame {
			t.Errorf("%s: %+v", source, r)
		}
	}
	eachBackend(t, func(t *testing.T, b Backend) {
		recordUntil(t, Options{Backend: b, PIDs: []int{pid}}, 20)
	})
	if n := aside.Started() - before; n > 0 && !foreign && !mounts.Foreign() {
		t.Errorf("%d helpers were started", n)
	}
}
