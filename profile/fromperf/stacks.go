package fromperf

import (
	"hallmark/profile"
	"hallmark/unwind"
)

// stacks numbers stacks, each with the way in which it was found. They are kept as a tree
// from the outermost frame inwards, for most have most of their frames in common: a stack
// is the number of the node of its innermost frame.
type stacks struct {
	nodes []node // nodes[0] is the root
	// more has the nodes of which their parent has listed ones enough, by the numbers of
	// parent and place. Most have few, and a list of those is faster.
	more map[uint64]uint32
}

type node struct {
	parent uint32
	place  uint32 // of the frame; below the root it is how the stack was found
	child  uint32 // the last one that was listed, 0 for none
	next   uint32 // in the list of the parent, 0 at its end
}

// maxListed is how many nodes below one are in its list.
const maxListed = 12

func newStacks() *stacks { return &stacks{nodes: make([]node, 1), more: map[uint64]uint32{}} }

// number returns the number of a stack of places, leaf first.
func (s *stacks) number(places []uint32, walk profile.Walk) uint32 {
	at := s.child(0, uint32(walk.End)<<8|uint32(walk.Methods))
	for i := len(places) - 1; i >= 0; i-- {
		at = s.child(at, places[i])
	}
	return at
}

// child returns the node of a place below another one.
func (s *stacks) child(parent, place uint32) uint32 {
	listed := 0
	for n := s.nodes[parent].child; n != 0; n = s.nodes[n].next {
		if s.nodes[n].place == place {
			return n
		}
		listed++
	}
	added := uint32(len(s.nodes))
	if listed < maxListed {
		s.nodes = append(s.nodes, node{parent: parent, place: place, next: s.nodes[parent].child})
		s.nodes[parent].child = added
		return added
	}
	key := uint64(parent)<<32 | uint64(place)
	if n, ok := s.more[key]; ok {
		return n
	}
	s.nodes = append(s.nodes, node{parent: parent, place: place})
	s.more[key] = added
	return added
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
