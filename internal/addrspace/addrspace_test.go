package addrspace

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
		var s Space[*int]
		type cell struct {
			of     *int
			offset addr.Offset
		}
		var model [pages]cell
		for range rng.IntN(40) {
			from := rng.IntN(pages)
			n := rng.IntN(pages-from) + 1
			m := Mapping[*int]{Start: addr.Abs(from * page), End: addr.Abs((from + n) * page),
				Offset: addr.Offset(rng.IntN(1000) * page), Of: new(int)}
			lo, hi := from, from+n
			if at := rng.IntN(pages); rng.IntN(3) > 0 {
				s.Insert(m)
			} else { // what is around a page, where nothing is mapped
				s.Fill(m, addr.Abs(at*page+rng.IntN(page)))
				if at < lo || at >= hi {
					continue
				}
				for lo, hi = at, at; lo > from && model[lo-1].of == nil; lo-- {
				}
				for ; hi < from+n && model[hi].of == nil; hi++ {
				}
				if hi == at {
					continue
				}
			}
			for i := lo; i < hi; i++ {
				model[i] = cell{m.Of, m.Offset + addr.Offset((i-from)*page)}
			}
		}
		for i, want := range model {
			a := addr.Abs(i*page + rng.IntN(page))
			m := s.Find(a)
			if (m == nil) != (want.of == nil) {
				t.Fatalf("page %d: found %v, want %v", i, m, want)
			}
			if m == nil {
				continue
			}
			if m.Of != want.of || m.FileOffset(a) != want.offset+addr.Offset(a%page) {
				t.Fatalf("page %d: offset %v, want %v", i, m.FileOffset(a), want.offset)
			}
		}
		for i := 1; i < len(s.mappings); i++ {
			if s.mappings[i].Start < s.mappings[i-1].End {
				t.Fatal("mappings overlap")
			}
		}
	}
}

// TestCopiesAreIndependent changes each of several copies, and the one they are copies of.
func TestCopiesAreIndependent(t *testing.T) {
	first, later := new(int), new(int)
	for changed := range 3 {
		var parent Space[*int]
		parent.Insert(Mapping[*int]{Start: 0x1000, End: 0x3000, Of: first})
		child := parent.Clone()
		grandchild := child.Clone()
		all := []*Space[*int]{&parent, &child, &grandchild}
		all[changed].Insert(Mapping[*int]{Start: 0x1000, End: 0x2000, Of: later})
		for i, s := range all {
			want := first
			if i == changed {
				want = later
			}
			if s.Find(0x1000).Of != want || s.Find(0x2000).Of != first {
				t.Errorf("space %d is wrong after a change of space %d", i, changed)
			}
		}
	}
}
