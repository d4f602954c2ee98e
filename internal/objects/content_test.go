package objects

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/contested"
	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
)

// TestOtherStates wants a file that changed to be another one than before, unless only the time of
// its inode is another and nobody else can have written it.
func TestOtherStates(t *testing.T) {
	state := func(trusted bool, v bpf.Validity) *Reading {
		return &Reading{Object: &Object{Key: reach.Key{Content: v}, trusted: trusted}}
	}
	first := bpf.Validity{Inode: 7, Size: 9, Mtime: bpf.Time{Sec: 1}, Ctime: bpf.Time{Sec: 2}, Pinned: 4}
	again, renamed, written := first, first, first
	again.Pinned = reach.AnyMapping
	renamed.Ctime.Sec++
	written.Mtime.Sec++
	for _, c := range []struct {
		v       bpf.Validity
		trusted bool
		want    bool
	}{
		{again, false, false}, {renamed, true, false}, {renamed, false, true}, {written, true, true}, {bpf.Validity{}, false, false},
	} {
		if got := state(c.trusted, c.v).IsOtherState(state(c.trusted, first)); got != c.want {
			t.Errorf("%+v (trusted: %v) is another state: %v", c.v, c.trusted, got)
		}
	}
}

// TestOverwrittenUnderMapping has files overwritten under their mappings, by their owner, after their contents were
// read. The owner sets the time of the last write back. Nobody proves a content then, whether there was room to keep the
// file open or not.
func TestOverwrittenUnderMapping(t *testing.T) {
	testenv.Root(t)
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	id, content := proctest.FileID(t, build), proctest.FileContent(t, build)
	other, err := os.ReadFile(forged)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		keep, owner   int
		isOverwritten bool // and has its times set back
		want          buildid.Content
	}{
		"another user's, kept":                     {1, 65534, false, content},
		"another user's, kept and overwritten":     {1, 65534, true, buildid.Content{}},
		"another user's, not kept":                 {0, 65534, false, content},
		"another user's, not kept and overwritten": {0, 65534, true, buildid.Content{}},
		"root's, not kept":                         {0, 0, false, content},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			proctest.CopyTo(t, build, path)
			if err := os.Chown(path, test.owner, test.owner); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * fstimes.Delay())
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			mapPage(t, int(f.Fd()), syscall.MAP_PRIVATE)
			s := New()
			defer s.Close()
			s.keep = test.keep
			j := jobOf(t, s, os.Getpid(), path, id)
			s.Reach(j)
			testenv.Await(t, "the content", func() bool { return !j.Object.Facts().Content.IsZero() })
			if was := proctest.Stat(t, path); test.isOverwritten {
				if _, err := f.WriteAt(other, 0); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, time.Time{}, time.Unix(was.Mtim.Unix())); err != nil {
					t.Fatal(err)
				}
			}
			s.Stop()
			s.Review()
			if got := ReadContents([]*Object{j.Object}, contested.Limits{})[0].Content; got != test.want {
				t.Errorf("content %v, want %v", got, test.want)
			}
		})
	}
}
