package capture

import (
	"sync"
	"testing"

	"hallmark/buildid"
	"hallmark/procmap"
	"hallmark/reason"
)

// TestObjectsAreShared asks for the same objects by several goroutines at once: each file and
// each reason has one object, whose number is its place in the list. The race detector watches.
func TestObjectsAreShared(t *testing.T) {
	const goroutines, files = 4, 500
	s := newPassingObjects()
	id, err := buildid.New(buildid.GNU, make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	found := make([][]*object, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range files {
				o := s.file(fileKey{inode: uint64(i)}, procmap.VMA{Name: "/lib/x.so", Inode: uint64(i)})
				s.learn(o, id)
				if !s.settled(o) {
					t.Errorf("file %d has no identity", i)
				}
				found[g] = append(found[g], o, s.missing(reason.Reason(i%7)))
			}
		})
	}
	all.Wait()
	defer s.close()
	for g := range goroutines {
		for i, o := range found[g] {
			if o != found[0][i] || s.list[o.index] != o {
				t.Fatalf("goroutine %d has another object %d", g, i)
			}
		}
	}
	if len(s.list) != files+7 {
		t.Errorf("%d objects", len(s.list))
	}
}
