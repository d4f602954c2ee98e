package capture

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/profile"
)

// forgedAtPath are shell scripts which execute $0, a forged build, so that the kernel calls it $1,
// the path of another build of its build ID, here. $2 is the command to be run with $1 as its program.
var forgedAtPath = map[string]string{
	"bound over it":       `exec unshare -m sh -c 'mount --bind "$0" "$1" && eval "$2"' "$0" "$1" "$2"`,
	"in a user namespace": `exec unshare -Urm sh -c 'mount --bind "$0" "$1" && eval "$2"' "$0" "$1" "$2"`,
	"bound over it elsewhere": `
		unshare -m sh -c 'mount --bind "$0" "$1" && exec sleep 60' "$0" "$1" &
		holder=$!
		until cmp -s "$0" "/proc/$holder/root$1"; do sleep .01; done
		set -- "/proc/$holder/root$1" "$2"
		eval "$2"
		kill $holder`,
	"a link later": `
		dir=${1%/*}; own=$(mktemp -d); mkdir "$own/dir"; cp "$0" "$own/dir/${1##*/}"
		set -- "$own/dir/${1##*/}" "$2"
		sleep .2
		eval "$2"
		mv "$own/dir" "$own/old"; ln -s "$dir" "$own/dir"; sleep .1; rm -r "$own"`,
}

// TestWatchForgedAtPath executes a forged build so shortly that its process is mostly gone when its
// file is looked for. It never has the content of the build at its path here.
func TestWatchForgedAtPath(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "unshare")
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	contents := map[buildid.Content]string{contentOf(t, build): "real", contentOf(t, forged): "forged", {}: "unknown"}
	time.Sleep(2 * fstimes.Delay()) // until the files are older than what follows
	const loop = `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$1" 0; done`
	for name, script := range forgedAtPath {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for _, ev := range watchCommand(t, WatchOptions{Backend: Perf}, "sh", "-c", script, forged, build, loop) {
				if ev.Kind == Executed && ev.Program != nil && ev.Program.ID == proctest.FileID(t, build) {
					seen[contents[ev.Program.Content]]++
				}
			}
			if total := seen["real"] + seen["forged"] + seen["unknown"]; total != 20 || seen["real"] > 0 {
				t.Errorf("%d executions: %v", total, seen)
			}
		})
	}
}

// TestRecordForgedAtPath records the real build, and then a forged one that the kernel calls by the
// same path. Samples in the forged one are not in a file with the content of the real one.
func TestRecordForgedAtPath(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "unshare")
	needPerf(t)
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	real := contentOf(t, build)
	time.Sleep(2 * fstimes.Delay())
	for name, script := range forgedAtPath {
		for _, ms := range []int{5, 300} {
			t.Run(fmt.Sprintf("%s for %d ms", name, ms), func(t *testing.T) {
				run := fmt.Sprintf(`for i in 1 2 3 4 5 6; do "$1" %d; done`, ms)
				p, _, _ := recordCommand(t, Options{Backend: Perf, Frequency: 1999}, "sh", "-c", `"$1" 100; `+script, forged, build, run)
				contents := profile.Contents(p)
				pids := map[int64]bool{}
				for _, s := range p.Sample {
					for c := range profile.Calls(s) {
						if m := c.Location.Mapping; m != nil && contents[m] == real {
							pids[s.NumLabel["pid"][0]] = true
						}
					}
				}
				if len(pids) > 1 {
					t.Errorf("%d processes had samples in the real build, which was executed once", len(pids))
				}
			})
		}
	}
}

func contentOf(t *testing.T, path string) buildid.Content {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := contentcache.OfMapped(t.Context(), f)
	if err != nil || c.IsZero() {
		t.Fatalf("the content of %s: %v, %v", path, c, err)
	}
	return c
}

// TestForgeryBesideUnknown has a forged file of another user beside the real one, of which it is
// open whether a process mapped another file by its name. The forged one does not keep the build ID.
func TestForgeryBesideUnknown(t *testing.T) {
	testenv.Root(t)
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	if err := os.Chown(forged, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, isOpen := range []bool{false, true} {
		objects := newObjects()
		defer objects.close()
		ours, theirs := fileObjectOf(t, objects, build), fileObjectOf(t, objects, forged)
		objects.work.stop()
		ours.exact, theirs.exact, ours.unsure = true, true, isOpen
		f := &finisher{files: map[distinct]*identified{}, ofObject: map[*object]*identified{}}
		f.distinguish(readContents([]*object{ours, theirs}))
		if b := f.ofObject[theirs]; b.ID.Kind() != buildid.ByContent || b.Claim != proctest.FileID(t, forged) {
			t.Errorf("open %v: the forged file is %+v", isOpen, b.Binary)
		}
		if b := f.ofObject[ours]; b.ID != proctest.FileID(t, build) || b.Unkept != isOpen {
			t.Errorf("open %v: the real file is %+v", isOpen, b.Binary)
		}
	}
}

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
	reached := func(t *testing.T) (*objects, job) {
		objects := newObjects()
		t.Cleanup(objects.close)
		first := jobOf(t, objects, real, build, id)
		objects.reach(first)
		testenv.Await(t, "the real file", func() bool { settled, _ := objects.work.settled(first); return settled })
		return objects, first
	}
	for name, late := range map[string]func(*objects, job){
		"asked for before it was settled": func(s *objects, j job) { s.work.ask(j) },
		"reached before it was settled": func(s *objects, j job) {
			found, _ := reach.Here(s.ctx, j.Request)
			s.work.accept(j, found)
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, first := reached(t)
			late(objects, jobOf(t, objects, other, build, id))
			objects.work.stop()
			if o := first.object; len(o.others) != 1 || o.others[0] != contentOf(t, forged) {
				t.Errorf("the contents %v were seen beside it, want %v", o.others, contentOf(t, forged))
			}
		})
	}
	t.Run("same stamp", func(t *testing.T) {
		objects, first := reached(t)
		o := first.object
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
func jobOf(t *testing.T, s *objects, pid int, file string, id buildid.ID) job {
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
	return job{Request: q, object: s.file(reach.Key{ID: id, Path: file}, code)}
}
