package rewrites

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/reach"
	"hallmark/procmap"
)

// TestRewritesUnknown wants a profile to name each process for which nobody could look, and why.
func TestRewritesUnknown(t *testing.T) {
	r := New(nil, nil)
	defer r.release()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	self, release := os.Getpid(), make(chan struct{})
	patience.Within(self, 0, func() { <-release }) // who waits for this process is not waited for twice
	for _, pid := range []int{self, 2, ended.Process.Pid} {
		r.sights[pid] = &Sight{name: "name"}
		r.look(pid, time.Minute)
	}
	close(release)
	want := []string{fmt.Sprintf("rewritten in memory: not known of name (%d): %v", self, patience.ErrSilent)}
	if got := r.unknown(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for { // the look before may not have ended
		if r.look(self, time.Minute); r.sights[self].looked {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := r.unknown(); len(got) > 0 {
		t.Errorf("%q, want nothing: everything was looked at, has no memory or has ended", got)
	}
	r.sights[self].err = &procmap.Error{PID: self, Err: &os.PathError{Op: "open", Path: "/proc/PID/pagemap", Err: os.ErrPermission}}
	for pid := 1001; pid < 1007; pid++ {
		r.sights[pid] = &Sight{name: "other", err: os.ErrPermission}
	}
	r.missed = 3
	got := strings.Join(r.unknown(), "\n")
	for _, part := range []string{"other (1003)", "2 more: permission denied", "of 3 samples: too many processes ran"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s; want %q in it", got, part)
		}
	}
}

// TestRewritesShares wants other users' processes to leave room for the pages of root's.
func TestRewritesShares(t *testing.T) {
	r := &Watcher{sights: map[int]*Sight{}, pagesOf: map[uint32]int{}}
	for user := uint32(70001); user < 70010; user++ {
		for range 10 {
			s := &Sight{user: user}
			for i := range maxOfProcess {
				r.keep(s, rewrittenPages{path: "/lib/a.so", inode: 1, start: addr.Offset(i) << 13})
			}
		}
		if r.pagesOf[user] > maxRewrites/4 {
			t.Errorf("%d ranges are kept of user %d, at most %d should be", r.pagesOf[user], user, maxRewrites/4)
		}
	}
	own := &Sight{}
	if r.keep(own, rewrittenPages{path: "/lib/b.so", inode: 2}); own.many || len(own.found) != 1 {
		t.Error("no range of a process of root's is kept")
	}
}

// TestRewritesBound wants a process with more ranges of pages than are kept to have none of its
// files believed, and those of other processes to be believed.
func TestRewritesBound(t *testing.T) {
	r := &Watcher{sights: map[int]*Sight{}, pagesOf: map[uint32]int{}}
	few, many := &Sight{}, &Sight{name: "many"}
	pages := func(i int) rewrittenPages {
		return rewrittenPages{path: "/lib/a.so", dev: procmap.Dev{Major: 8}, inode: 1, start: addr.Offset(2*i) << 12, end: addr.Offset(2*i+1) << 12}
	}
	for i := range maxOfProcess + 1 {
		r.keep(many, pages(i))
	}
	for range 2 {
		r.keep(few, pages(1))
		r.keep(few, rewrittenPages{path: "/lib/a.so", dev: procmap.Dev{Major: 8}, inode: 1, start: 0x2800, end: 0x4000})
	}
	other := &objects.Object{Path: "/lib/b.so", Key: reach.Key{Inode: 2, Major: 8}}
	same := &objects.Object{Path: "/lib/a.so", Key: reach.Key{Inode: 1, Major: 8}}
	if !many.many || len(many.found) != maxOfProcess || r.pages != maxOfProcess+2 {
		t.Errorf("%d ranges are kept, %d of all, more: %v", len(many.found), r.pages, many.many)
	}
	for _, c := range []struct {
		seen   *Sight
		object *objects.Object
		at     addr.Offset
		want   bool
	}{
		{few, same, 0x1fff, false}, {few, same, 0x2000, true}, {few, same, 0x3fff, true}, {few, same, 0x4000, false},
		{few, other, 0x2000, false}, {many, other, 0x10, true}, {many, same, 1 << 40, true},
	} {
		if got := Holds(c.seen.In(c.object, nil), c.at); got != c.want {
			t.Errorf("%s %#x: %v", c.object.Path, c.at, got)
		}
	}
	virtual := &Sight{}
	r.keep(virtual, rewrittenPages{path: "/all/lib/a.so", inode: 77, start: 0x2000, end: 0x4000}) // of an overlay
	files := map[*objects.Object]bool{same: true, other: true}
	if spans := virtual.OfAny(files); len(spans) != 0 {
		t.Errorf("%v may be of any file, want none: one has the name", spans)
	}
	delete(files, same)
	if spans := virtual.OfAny(files); len(spans) != 1 || !slices.Equal(virtual.In(other, spans), spans) {
		t.Errorf("%v may be of any file, want those of a file that has another name", spans)
	}
	if notes := many.notes(7); len(notes) != 2 || !strings.Contains(notes[1], "more pages than") {
		t.Errorf("notes %q", notes)
	}
	if notes := few.notes(7); len(notes) != 1 || !strings.Contains(notes[0], "2 pages") {
		t.Errorf("notes %q", notes)
	}
}
