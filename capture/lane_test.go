package capture

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/procfs"
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
		r.ask(job{pid: busy})
	}
	for range 1000 {
		r.ask(job{pid: second})
	}
	r.ask(job{pid: last})
	r.ask(job{pid: uint32(os.Getpid())})
	if n := len(r.own.turns); n != 1 {
		t.Fatalf("%d users in the lane of this one, want 1", n)
	}
	if j, ok := r.next(&r.own); !ok || j.pid != uint32(os.Getpid()) {
		t.Errorf("the first file is of process %d, want this one's", j.pid)
	}
	for i, want := range []uint32{busy, second, last, busy, second, busy} {
		if j, ok := r.next(&r.others); !ok || j.pid != want {
			t.Errorf("turn %d is that of process %d, want %d", i, j.pid, want)
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

// TestHashingHasTwoBudgets has a stranger's file use up what is hashed, and what is read of
// contents, and wants those of a file of this user all the same.
func TestHashingHasTwoBudgets(t *testing.T) {
	testenv.Root(t)
	withHashing(t, 1<<20)
	objects := newObjects()
	defer objects.close()
	// Not below a directory that others can change.
	dir, err := os.MkdirTemp("/var/lib", "hallmark")
	if err != nil {
		testenv.Lack(t, "%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	read := func(name string, owner, size int) reached {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte(name), size/len(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return identifyOpen(objects.ctx, f, false)
	}
	if found := read("theirs", 65534, 1<<20); found.why != reason.None {
		t.Fatalf("the stranger's file: %v", found.why)
	}
	if found := read("more", 65534, 1<<20); found.why != reason.HashBudget {
		t.Errorf("one more file of the stranger: %v, want %v", found.why, reason.HashBudget)
	}
	if found := read("ours", 0, 1<<20); found.why != reason.None || found.id.Kind() != buildid.ByContent {
		t.Errorf("this user's file: %v (%v)", found.id, found.why)
	}
	if found := read("beyond", 0, 1<<20); found.why != reason.HashBudget {
		t.Errorf("one more file of this user: %v, want %v", found.why, reason.HashBudget)
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
