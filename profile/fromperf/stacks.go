package fromperf

import (
	"hallmark/profile"
	"hallmark/unwind"
)

// stacks numbers stacks, each with the way in which it was found. They are kept as a tree
// from the outermost frame inwards, for most have most of their frames in common: a stack
// is the number of the node of its innermost frame.
type stacks struct {
	nodes []node            // nodes[0] is the root
	index map[uint64]uint32 // of a node, by the numbers of its parent and its place
}

type node struct {
	parent uint32
	place  uint32 // of the frame; below the root it is how the stack was found
}

func newStacks() *stacks { return &stacks{nodes: make([]node, 1), index: map[uint64]uint32{}} }

// number returns the number of a stack of places, leaf first.
func (s *stacks) number(places []uint32, walk profile.Walk) uint32 {
	at := s.child(0, uint32(walk.End)<<8|uint32(walk.Methods))
	for i := len(places) - 1; i >= 0; i-- {
		at = s.child(at, places[i])
	}
	return at
}

func (s *stacks) child(parent, place uint32) uint32 {
	key := uint64(parent)<<32 | uint64(place)
	n, ok := s.index[key]
	if !ok {
		n = uint32(len(s.nodes))
		s.nodes = append(s.nodes, node{parent, place})
		s.index[key] = n
	}
	return n
}

// appendTo appends the places of a stack, leaf first, and returns how it was found.
func (s *stacks) appendTo(places []uint32, stack uint32) ([]uint32, profile.Walk) {
	for n := s.nodes[stack]; ; n = s.nodes[n.parent] {
		if n.parent == 0 {
			return places, profile.Walk{End: unwind.End(n.place >> 8), Methods: profile.Methods(n.place)}
		}
		places = append(places, n.place)
	}
}
