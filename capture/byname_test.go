package capture

import (
	"fmt"
	"os"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/execwatch"
	"hallmark/internal/fstimes"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
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
	contents := map[buildid.Content]string{proctest.FileContent(t, build): "real", proctest.FileContent(t, forged): "forged", {}: "unknown"}
	time.Sleep(2 * fstimes.Delay()) // until the files are older than what follows
	const loop = `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$1" 0; done`
	for name, script := range forgedAtPath {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for _, ev := range watched(t, execwatch.Options{Backend: Perf}, "sh", "-c", script, forged, build, loop) {
				if ev.Kind == execwatch.Executed && ev.Program != nil && ev.Program.ID == proctest.FileID(t, build) {
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
	real := proctest.FileContent(t, build)
	time.Sleep(2 * fstimes.Delay())
	for name, script := range forgedAtPath {
		for _, ms := range []int{5, 150} {
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

// TestForgeryBesideUnknown has a forged file of another user beside the real one, of which it is
// open whether a process mapped another file by its name. The forged one does not keep the build ID.
func TestForgeryBesideUnknown(t *testing.T) {
	testenv.Root(t)
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	if err := os.Chown(forged, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, isOpen := range []bool{false, true} {
		set := objects.New()
		defer set.Close()
		ours := set.OfOpened(objects.Opened{Path: build, ID: proctest.FileID(t, build), Content: openFile(t, build), Exact: true, Unsure: isOpen})
		theirs := exactObjectOf(t, set, forged)
		set.Stop()
		f := &finisher{files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
		f.distinguish(f.read([]*objects.Object{ours, theirs}, contentLimits))
		if b := f.ofObject[theirs]; b.ID.Kind() != buildid.ByContent || b.Claim != proctest.FileID(t, forged) {
			t.Errorf("open %v: the forged file is %+v", isOpen, b.Binary)
		}
		if b := f.ofObject[ours]; b.ID != proctest.FileID(t, build) || b.Unkept || (b.Claimant != nil) != isOpen {
			t.Errorf("open %v: the real file is %+v", isOpen, b.Binary)
		}
	}
}
