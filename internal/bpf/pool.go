package bpf

import (
	"cmp"
	"slices"
)

// span is a piece of the pool, in bytes.
type span struct{ start, size uint32 }

func (s span) end() uint32 { return s.start + s.size }

// spans are pieces that are free, in the order of their places. None touches the next.
type spans []span

// take returns where there is room for so many bytes: in the smallest piece that has it.
func (s *spans) take(size uint32) (start uint32, ok bool) {
	best := -1
	for i, free := range *s {
		if free.size >= size && (best < 0 || free.size < (*s)[best].size) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	free := &(*s)[best]
	start = free.start
	if free.size == size {
		*s = slices.Delete(*s, best, best+1)
		return start, true
	}
	free.start += size
	free.size -= size
	return start, true
}

// give makes a piece free, as one with those that it touches.
func (s *spans) give(p span) {
	i, _ := slices.BinarySearchFunc(*s, p, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	*s = slices.Insert(*s, i, p)
	if i+1 < len(*s) && (*s)[i].end() == (*s)[i+1].start {
		(*s)[i].size += (*s)[i+1].size
		*s = slices.Delete(*s, i+1, i+2)
	}
	if i > 0 && (*s)[i-1].end() == (*s)[i].start {
		(*s)[i-1].size += (*s)[i].size
		*s = slices.Delete(*s, i, i+1)
	}
}
