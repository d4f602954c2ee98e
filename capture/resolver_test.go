package capture

import (
	"os"
	"os/exec"
	"slices"
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

// TestJobsAreOfUsers has jobs be queued for the users whose processes they are of.
func TestJobsAreOfUsers(t *testing.T) {
	var users []uint32
	r := &resolver{queue: func(user uint32, _ job) { users = append(users, user) }}
	for _, pid := range []uint32{startAs(t, "65534"), startAs(t, "65533"), uint32(os.Getpid())} {
		r.ask(job{Request: reach.Request{PID: pid}})
	}
	if want := []uint32{65534, 65533, uint32(os.Geteuid())}; !slices.Equal(users, want) {
		t.Errorf("jobs of the users %d, want %d", users, want)
	}
}

// TestNotReadIsNotGone wants no file reported as gone that nobody has looked at.
func TestNotReadIsNotGone(t *testing.T) {
	objects := newObjects()
	defer objects.close()
	v := procmap.VMA{Name: "/bin/true"}
	for name, o := range map[string]*object{
		"a record":  objects.file(reach.Key{Inode: 1}, v),
		"an event":  objects.passing(reach.Key{Inode: 2}, v),
		"a program": objects.ofContent(&bpf.File{Validity: bpf.Validity{Inode: 3}}, v, buildid.ID{}),
	} {
		var b Binary
		if objects.identify(o, &b); b.Reason != reason.NotRead {
			t.Errorf("of %s: %v, want %v", name, b.Reason, reason.NotRead)
		}
	}
}
