package capture

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

// startAs starts a process of another user that waits.
func startAs(t *testing.T, user string) uint32 {
	t.Helper()
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	c := exec.Command("setpriv", "--reuid", user, "--clear-groups", "sleep", "3600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	pid := uint32(c.Process.Pid)
	testenv.Await(t, "another user", func() bool { return procfs.UserOf(pid) != 0 })
	return pid
}

// TestResolverServesInTurn has two users ask for many files, and after them this one and a third.
func TestResolverServesInTurn(t *testing.T) {
	objects := newObjects()
	defer objects.close()
	r := &resolver{objects: objects} // that has no workers
	r.wake = sync.NewCond(&r.mu)
	busy, second, last := startAs(t, "65534"), startAs(t, "65533"), startAs(t, "65532")
	for range 1000 {
		r.ask(job{Request: reach.Request{PID: busy}})
	}
	for range 1000 {
		r.ask(job{Request: reach.Request{PID: second}})
	}
	r.ask(job{Request: reach.Request{PID: last}})
	r.ask(job{Request: reach.Request{PID: uint32(os.Getpid())}})
	if n := len(r.own.turns); n != 1 {
		t.Fatalf("%d users in the lane of this one, want 1", n)
	}
	if j, ok := r.next(&r.own); !ok || j.PID != uint32(os.Getpid()) {
		t.Errorf("the first file is of process %d, want this one's", j.PID)
	}
	for i, want := range []uint32{busy, second, last, busy, second, busy} {
		if j, ok := r.next(&r.others); !ok || j.PID != want {
			t.Errorf("turn %d is that of process %d, want %d", i, j.PID, want)
		}
	}
	for i := range 2000 - 5 {
		if _, ok := r.next(&r.others); !ok {
			t.Fatalf("job %d got lost", i)
		}
	}
	if len(r.others.shares)+len(r.others.turns) > 0 {
		t.Errorf("left: %d shares, %d turns", len(r.others.shares), len(r.others.turns))
	}
}

// TestNotReadIsNotGone wants no file to be told as gone that nobody has looked at.
func TestNotReadIsNotGone(t *testing.T) {
	objects := newObjects()
	defer objects.close()
	v := procmap.VMA{Name: "/bin/true"}
	for name, o := range map[string]*object{
		"a record":  objects.file(fileKey{inode: 1}, v),
		"an event":  objects.passing(fileKey{inode: 2}, v),
		"a program": objects.ofContent(&bpf.File{Validity: bpf.Validity{Inode: 3}}, v, buildid.ID{}),
	} {
		var b Binary
		if objects.identify(o, &b); b.Reason != reason.NotRead {
			t.Errorf("of %s: %v, want %v", name, b.Reason, reason.NotRead)
		}
	}
}
