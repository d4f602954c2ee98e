package capture

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
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

// TestChangedBeforeItWasLookedAt wants a file that is known by its inode alone not to give the content
// that it has now to a mapping of before, which nobody looked at in time.
func TestChangedBeforeItWasLookedAt(t *testing.T) {
	program, pid := proctest.RunCopy(t, "/bin/sleep", "3600")
	for name, c := range map[string]struct {
		changed time.Duration // the time of the change, after that of the mapping which nobody looked at
		looked  []string
	}{
		"looked at last":         {time.Second, []string{"present", "ended"}},
		"looked at first":        {time.Second, []string{"ended", "present"}},
		"changed before, last":   {-time.Second, []string{"present", "ended"}},
		"changed before, though": {-time.Second, []string{"ended", "present"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newObjects()
			defer s.close()
			present := jobOf(t, s, pid, program, buildid.ID{})
			o := s.file(reach.Key{Major: 8, Minor: 1, Inode: 7}, present.VMA)
			present.object = o
			ended := present
			ended.PID = 1<<22 + 1 // more than PID_MAX_LIMIT of include/linux/threads.h
			info, err := os.Stat(program)
			if err != nil {
				t.Fatal(err)
			}
			ended.Mapped = info.ModTime().Add(-c.changed)
			for _, which := range c.looked {
				s.reach(map[string]job{"present": present, "ended": ended}[which])
				testenv.Await(t, which, func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return o.tried == o.asked
				})
			}
			switch {
			case c.changed > 0 && (!o.id.IsZero() || o.why != reason.FileChanged):
				t.Errorf("identity %v (%v), want none: the file changed between the mappings", o.id, o.why)
			case c.changed < 0 && o.id != proctest.FileID(t, program):
				t.Errorf("identity %v (%v), want that of the file", o.id, o.why)
			}
		})
	}
}

// TestReadAgainCountsFromThen reads the mappings of a process again, for a sample of before: they count
// from then on, and before only where nothing else is known, and for not long.
func TestReadAgainCountsFromThen(t *testing.T) {
	vmas, err := reach.Mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var text, vdso procmap.VMA
	for _, v := range vmas {
		switch {
		case v.Perm&procmap.Exec == 0:
		case v.Name == "[vdso]":
			vdso = v
		case text.End == 0 && v.FileBacked():
			text = v
		}
	}
	for name, behind := range map[string]uint64{"in time": 0, "late": 2 * maxBehind} {
		t.Run(name, func(t *testing.T) {
			s := newObjects()
			defer s.close()
			tracker := &tracker{tally: &tally{objects: s}, processes: map[uint32]*process{}}
			before := new(object)
			p := &process{pid: uint32(os.Getpid())}
			p.space.Insert(mapping{Start: text.Start, End: text.End, Of: before})
			tracker.refresh(p, vdso.Start, perfring.Monotonic()-behind)
			if p.space.Find(text.Start).Of != before {
				t.Error("what is mapped now is taken for what was mapped before")
			}
			if isKnown := p.space.Find(vdso.Start) != nil; isKnown == (behind > 0) {
				t.Errorf("where nothing was known to be mapped something is: %v", isKnown)
			}
			p.catchUp(p.freshAsOf)
			if m := p.space.Find(text.Start); m.Of == before || p.space.Find(vdso.Start) == nil {
				t.Error("what was read does not count later on")
			}
		})
	}
}
