package capture

import (
	"math/rand/v2"
	"testing"

	"hallmark/addr"
)

// TestSpaceAgainstPages compares insert and find with a model that keeps the
// file offset of every single page.
func TestSpaceAgainstPages(t *testing.T) {
	const pages, page = 64, 4096
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s space
		type cell struct {
			object *object
			offset addr.Offset
		}
		var model [pages]cell
		for range rng.IntN(40) {
			from := rng.IntN(pages)
			n := rng.IntN(pages-from) + 1
			m := mapping{start: addr.Abs(from * page), end: addr.Abs((from + n) * page),
				offset: addr.Offset(rng.IntN(1000) * page), object: new(object)}
			s.insert(m)
			for i := range n {
				model[from+i] = cell{m.object, m.offset + addr.Offset(i*page)}
			}
		}
		for i, want := range model {
			a := addr.Abs(i*page + rng.IntN(page))
			m := s.find(a)
			if (m == nil) != (want.object == nil) {
				t.Fatalf("page %d: found %v, want %v", i, m, want)
			}
			if m == nil {
				continue
			}
			if m.object != want.object || m.fileOffset(a) != want.offset+addr.Offset(a%page) {
				t.Fatalf("page %d: offset %v, want %v", i, m.fileOffset(a), want.offset)
			}
		}
		for i := 1; i < len(s.mappings); i++ {
			if s.mappings[i].start < s.mappings[i-1].end {
				t.Fatal("mappings overlap")
			}
		}
	}
}

func TestSpaceForkIsIndependent(t *testing.T) {
	var parent space
	parent.insert(mapping{start: 0x1000, end: 0x3000, object: new(object)})
	child := parent.clone()
	child.insert(mapping{start: 0x1000, end: 0x2000, object: new(object)})
	if parent.find(0x1000).object == child.find(0x1000).object {
		t.Error("a mapping of the child appeared in the parent")
	}
	if parent.find(0x2000).object != child.find(0x2000).object {
		t.Error("the child lost a mapping of the parent")
	}
}
