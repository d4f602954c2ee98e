package objects

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/internal/turns"
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
	r := &resolver{queue: func(user uint32, _ Job) bool { users = append(users, user); return true }}
	for _, pid := range []uint32{startAs(t, "65534"), startAs(t, "65533"), uint32(os.Getpid())} {
		r.ask(Job{Request: reach.Request{PID: pid}})
	}
	if want := []uint32{65534, 65533, uint32(os.Geteuid())}; !slices.Equal(users, want) {
		t.Errorf("jobs of the users %d, want %d", users, want)
	}
}

// TestNotReadIsNotGone wants no file reported as gone that nobody has looked at.
func TestNotReadIsNotGone(t *testing.T) {
	objects := New()
	defer objects.Close()
	v := procmap.VMA{Name: "/bin/true"}
	for name, o := range map[string]*Object{
		"a record":  objects.File(reach.Key{Inode: 1}, v, 0),
		"an event":  objects.Passing(reach.Key{Inode: 2}, v),
		"a program": objects.OfContent(&bpf.File{Validity: bpf.Validity{Inode: 3}}, v, buildid.ID{}),
	} {
		if f := o.Facts(); f.Why != reason.NotRead {
			t.Errorf("of %s: %v, want %v", name, f.Why, reason.NotRead)
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
			s := New()
			defer s.Close()
			present := jobOf(t, s, pid, program, buildid.ID{})
			o := s.File(reach.Key{Major: 8, Minor: 1, Inode: 7}, present.VMA, 0)
			present.Object = o
			ended := present
			ended.PID = 1<<22 + 1 // more than PID_MAX_LIMIT of include/linux/threads.h
			info, err := os.Stat(program)
			if err != nil {
				t.Fatal(err)
			}
			ended.Mapped = info.ModTime().Add(-c.changed)
			for _, which := range c.looked {
				s.Reach(map[string]Job{"present": present, "ended": ended}[which])
				testenv.Await(t, which, func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return o.tried == o.asked
				})
			}
			switch {
			case c.changed > 0 && (!o.ID.IsZero() || o.Why != reason.FileChanged):
				t.Errorf("identity %v (%v), want none: the file changed between the mappings", o.ID, o.Why)
			case c.changed < 0 && o.ID != proctest.FileID(t, program):
				t.Errorf("identity %v (%v), want that of the file", o.ID, o.Why)
			}
		})
	}
}

// TestSilentOpening has a file be opened for longer than is waited for: what comes of it then
// changes nothing.
func TestSilentOpening(t *testing.T) {
	objects := New()
	objects.work.workers.Stop(patience.Long)
	objects.work.most = time.Millisecond
	begun, answer := make(chan struct{}), make(chan struct{})
	objects.work.workers = turns.New(func(Job) func() {
		close(begun)
		<-answer // that is how long it takes
		return nil
	})
	objects.work.workers.Ask(0, Job{})
	<-begun
	objects.work.stop()
	defer objects.Close()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, objects, os.Getpid(), exe, buildid.ID{})
	objects.work.do(j)
	close(answer)
	if o := j.Object; o.Content != nil || o.ID != (buildid.ID{}) {
		t.Errorf("the file is %v, open: %v", o.ID, o.Content != nil)
	}
}

// TestJudgement wants what user space opens to be believed where times show changes, or the
// kernel has read the same.
func TestJudgement(t *testing.T) {
	id := func(n byte) buildid.ID {
		id, err := buildid.New(buildid.GNU, []byte{n, 2, 3, 4, 5, 6, 7, 8})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	times, mapping := &bpf.Validity{}, &bpf.Validity{Pinned: 4}
	for _, c := range []struct {
		name      string
		known     buildid.ID
		unsampled bool
		q         reach.Request
		f         reach.Found
		want      reason.Reason
	}{
		{name: "proven", q: reach.Request{Validity: times}, f: reach.Found{ID: id(1), Proven: true}},
		{name: "not proven", q: reach.Request{Validity: times}, f: reach.Found{ID: id(1)}, want: reason.FileChanged},
		{name: "what the kernel read", known: id(1), q: reach.Request{Validity: mapping}, f: reach.Found{ID: id(1)}},
		{name: "not what the kernel read", known: id(2), q: reach.Request{Validity: mapping}, f: reach.Found{ID: id(1)}, want: reason.FileChanged},
		{name: "nothing was read", q: reach.Request{Validity: mapping}, f: reach.Found{ID: id(1)}, want: reason.FileTimes},
		{name: "record", f: reach.Found{ID: id(1)}},
		{name: "record without proof", f: reach.Found{ID: id(1), Fickle: true}, want: reason.FileTimes},
		{name: "before samples", unsampled: true, f: reach.Found{ID: id(1), Fickle: true}},
		{name: "record with identity", q: reach.Request{Want: id(1)}, f: reach.Found{ID: id(1), Fickle: true}},
	} {
		s := NewPassing()
		s.unsampled = c.unsampled
		if have := s.judge(c.q, c.known, c.f); have != c.want {
			t.Errorf("%s: %v, want %v", c.name, have, c.want)
		}
		s.Close()
	}
}

// TestMappingsWithoutNumbers wants mappings to be objects of their own where device and inode
// do not distinguish files, and one where they do or the kernel read an identity.
func TestMappingsWithoutNumbers(t *testing.T) {
	s := NewPassing()
	defer s.Close()
	for _, c := range []struct {
		major uint32
		same  bool
	}{{0, false}, {8, true}} {
		v := procmap.VMA{Start: 0x1000, End: 0x2000, Perm: procmap.Read | procmap.Exec, Dev: procmap.Dev{Major: c.major}, Inode: 7, Name: "/no/such/file"}
		p := &Process{PID: math.MaxInt32}
		if one, two := s.OfVMA(v, p), s.OfVMA(v, p); (one == two) != c.same {
			t.Errorf("device %d: one object: %v", c.major, one == two)
		}
	}
}
