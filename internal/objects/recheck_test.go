package objects

import (
	"os"
	"slices"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

// TestForgeryWhileReached maps a forged build under the path of the real one, before the real one was
// reached: what is asked for meanwhile is looked at all the same. A copy with inode number, size
// and times of the real one on another device is no file that is known.
func TestForgeryWhileReached(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "unshare")
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	if err := os.Chown(forged, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	id := proctest.FileID(t, build)
	script := `exec unshare -m sh -c 'mount --bind "$0" "$1" && exec "$1" 3600000' "$0" "$1"`
	real, other := proctest.Start(t, build, "3600000"), proctest.Start(t, "sh", "-c", script, forged, build)
	reached := func(t *testing.T) (*Set, Job) {
		objects := New()
		t.Cleanup(objects.Close)
		first := jobOf(t, objects, real, build, id)
		objects.Reach(first)
		testenv.Await(t, "the real file", func() bool { settled, _ := objects.work.settled(first); return settled })
		return objects, first
	}
	for name, late := range map[string]func(*Set, Job){
		"asked for before it was settled": func(s *Set, j Job) { s.work.ask(j) },
		"reached before it was settled": func(s *Set, j Job) {
			found, _ := reach.Here(s.ctx, j.Request)
			s.work.accept(j, found)
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, first := reached(t)
			late(objects, jobOf(t, objects, other, build, id))
			objects.Stop()
			if o := first.Object; len(o.others) != 1 || o.others[0] != proctest.FileContent(t, forged) {
				t.Errorf("the contents %v were seen beside it, want %v", o.others, proctest.FileContent(t, forged))
			}
		})
	}
	t.Run("same stamp", func(t *testing.T) {
		objects, first := reached(t)
		o := first.Object
		for _, c := range []struct {
			dev     uint64
			trusted bool
			want    shows
		}{{o.dev, false, showsKnown}, {o.dev + 1, true, showsKnown}, {o.dev + 1, false, showsAnother}, {o.dev + 1, false, showsKnown}} {
			if is := objects.work.note(o, reach.Sighting{Stamp: o.seen, Dev: c.dev}, func() bool { return c.trusted }); is != c.want {
				t.Errorf("%+v: %v", c, is)
			}
		}
	})
}

// jobOf returns the job of a file that a process has mapped for execution, as one of perf's records has it.
func jobOf(t *testing.T, s *Set, pid int, file string, id buildid.ID) Job {
	t.Helper()
	var code procmap.VMA
	testenv.Await(t, file, func() bool {
		p, err := procmap.Open(pid)
		if err != nil {
			return false // it is starting
		}
		defer p.Close()
		vmas, err := p.Executable()
		i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Name == file })
		if err != nil || i < 0 {
			return false // it is not there yet
		}
		code = vmas[i]
		return true
	})
	q := reach.Request{PID: uint32(pid), VMA: code, Mapped: time.Now(), Want: id}
	return Job{Request: q, Object: s.File(reach.Key{ID: id, Path: file}, code, 0)}
}

// TestUnseenMappings has mappings of a claim of which nobody sees the file: nothing is known of its
// content then, however well another mapping of it is known.
func TestUnseenMappings(t *testing.T) {
	testenv.Root(t)
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	id := proctest.FileID(t, build)
	pid := proctest.Start(t, build, "3600000")
	reached := func(s *Set, j Job) {
		s.Reach(j)
		testenv.Await(t, "the real file", func() bool { return j.Object.Facts().Seen != reach.Sighting{} })
	}
	drop := func(uint32, Job) bool { return true }
	for name, scene := range map[string]func(s *Set, seen, unseen Job){
		"ended before any was seen": func(s *Set, seen, unseen Job) {
			unseen.VMA.Name += " elsewhere"
			s.Reach(unseen)
			testenv.Await(t, "a failure", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return unseen.Object.tried == 1 })
			reached(s, seen)
		},
		"another one than was looked at": func(s *Set, seen, unseen Job) {
			reached(s, seen)
			f, err := os.Open(forged)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			found := reach.File(s.ctx, unseen.Request, maxRechecked) // at the path of the real one
			defer found.Close()
			s.work.addOther(unseen, found, reach.SightingOf(f))
		},
		"more than are reached": func(s *Set, seen, unseen Job) {
			queue := s.Divert(drop)
			for range reach.MaxAttempts {
				s.Reach(seen)
			}
			s.Divert(queue)
			seen.Object.tried = reach.MaxAttempts - 1
			s.Reach(unseen)
			s.work.do(Job{Request: seen.Request, Object: seen.Object})
		},
		"not looked at before the end": func(s *Set, seen, unseen Job) {
			reached(s, seen)
			s.Divert(drop)
			s.Reach(unseen)
		},
		"too many wait": func(s *Set, seen, unseen Job) {
			reached(s, seen)
			s.Divert(func(uint32, Job) bool { return false })
			s.Reach(unseen)
		},
		"too many wait before any was seen": func(s *Set, seen, unseen Job) {
			queue := s.Divert(func(uint32, Job) bool { return false })
			s.Reach(unseen)
			s.Divert(queue)
			reached(s, seen)
		},
		"not reached before the end": func(s *Set, seen, unseen Job) {
			queue := s.Divert(drop)
			s.Reach(unseen)
			s.Divert(queue)
			reached(s, seen)
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := New()
			defer objects.Close()
			seen := jobOf(t, objects, pid, build, id)
			unseen := seen
			unseen.PID = 1<<22 + 1 // more than PID_MAX_LIMIT of the kernel
			scene(objects, seen, unseen)
			objects.Stop()
			objects.Review()
			if o := seen.Object; o.ID != id || o.early.IsZero() || !o.unsure {
				t.Errorf("the object has the identity %v, the content %v, and may not be sure: %v", o.ID, o.early, o.unsure)
			}
		})
	}
	t.Run("all were seen", func(t *testing.T) {
		objects := New()
		defer objects.Close()
		seen := jobOf(t, objects, pid, build, id)
		reached(objects, seen)
		objects.Reach(seen)
		objects.Stop()
		objects.Review()
		if o := seen.Object; o.ID != id || o.early != proctest.FileContent(t, build) || o.unsure || len(o.others) > 0 {
			t.Errorf("%+v", o)
		}
	})
}
