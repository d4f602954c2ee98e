package query

import (
	"cmp"
	"slices"
)

// place is a frame on a stack of the tree, and what counts for it.
type place struct {
	node  uint32
	frame uint32 // of the node: which location
	at    uint32 // of the location: which of its shown frames
	side  uint8
	value int64
	size  int64 // the same without signs
}

// walker goes from places to those below or above, and sorts these by frame.
type walker struct {
	sides  []*weights
	bucket []int32 // by frame: number of its step + 1
	steps  []step
	found  []place // of all steps, in the order that they were met
	of     []int32 // of each: number of its step

	same  int32   // the frame that the walk comes from, if calls of itself are not shown; else noFrame
	again []place // where it calls itself
}

const noFrame = -2

// step is the places of one frame next to those that the walk came from.
type step struct {
	frame  int32
	value  [2]int64 // profile, base
	size   [2]int64 // the same without signs
	places []place
	count  int  // of places
	inline bool // all of them are inlined into what is above
}

// sum is of steps.
type sum struct{ value, size [2]int64 }

func (s *sum) add(more *step) {
	for side := range s.value {
		s.value[side] += more.value[side]
		s.size[side] += more.size[side]
	}
}

func newWalker(sides []*weights, frames int) *walker {
	return &walker{sides: sides, bucket: make([]int32, frames), same: noFrame}
}

// put adds a place to the step of its frame.
func (w *walker) put(p place, frame int32, inlined bool) {
	if frame == w.same {
		w.again = append(w.again, p)
		return
	}
	n := w.bucket[frame]
	if n == 0 {
		w.steps = append(w.steps, step{frame: frame, inline: true})
		n = int32(len(w.steps))
		w.bucket[frame] = n
	}
	s := &w.steps[n-1]
	s.value[p.side] += p.value
	s.size[p.side] += p.size
	s.inline = s.inline && inlined
	s.count++
	w.found, w.of = append(w.found, p), append(w.of, n-1)
}

// take returns the steps that count so much at least, those that count most first, what the others count, and how
// many these are.
func (w *walker) take(rank func(size [2]int64) float64, least float64) (steps []step, cut sum, cuts int32) {
	count := 0
	for i := range w.steps {
		s := &w.steps[i]
		w.bucket[s.frame] = 0
		if rank(s.size) < least {
			cuts++
			cut.add(s)
			s.count = 0
		}
		count += s.count
	}
	if count > 0 {
		w.place(count)
	}
	for _, s := range w.steps {
		if s.count > 0 {
			steps = append(steps, s)
		}
	}
	clear(w.steps) // of places
	w.steps, w.found, w.of = w.steps[:0], w.found[:0], w.of[:0]
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(-cmp.Compare(rank(a.size), rank(b.size)), cmp.Compare(a.frame, b.frame))
	})
	return steps, cut, cuts
}

// place gives the steps their places, which are so many. Steps that are left out have a count of 0.
func (w *walker) place(count int) {
	room := make([]place, count)
	for i := range w.steps {
		s := &w.steps[i]
		s.places, room = room[:0:s.count], room[s.count:]
	}
	for i, n := range w.of {
		if s := &w.steps[n]; s.count > 0 {
			s.places = append(s.places, w.found[i])
		}
	}
}

// down puts the frames that are called at a place, and returns what ends there.
func (w *walker) down(p place) (self int64) {
	side := w.sides[p.side]
	frames := side.tree.Frames(p.node)
	if int(p.frame) < len(frames) {
		if chain := side.chains.of(frames[p.frame]); int(p.at)+1 < len(chain) {
			p.at++
			w.put(p, chain[p.at], true)
			return 0
		}
	}
	return w.into(p, int(p.frame)+1)
}

// into puts the first frame of a node from one of its locations on, or those of the nodes below.
func (w *walker) into(p place, from int) (self int64) {
	side := w.sides[p.side]
	frames := side.tree.Frames(p.node)
	for i := from; i < len(frames); i++ {
		if chain := side.chains.of(frames[i]); len(chain) > 0 {
			w.put(place{p.node, uint32(i), 0, p.side, side.total[p.node], side.size[p.node]}, chain[0], false)
			return 0
		}
	}
	// Nodes below are looked into where nothing of them is shown.
	self = side.self[p.node]
	end := side.tree.End(p.node)
	for n := p.node + 1; n < end; {
		next, found := side.tree.End(n), false
		for i, l := range side.tree.Frames(n) {
			if chain := side.chains.of(l); len(chain) > 0 {
				if found = true; side.size[n] != 0 {
					w.put(place{n, uint32(i), 0, p.side, side.total[n], side.size[n]}, chain[0], false)
				}
				break
			}
		}
		if !found {
			self += side.self[n]
			next = n + 1
		}
		n = next
	}
	return self
}

// up puts the frame that called at a place, and returns what has no caller.
func (w *walker) up(p place) (self int64) {
	if p.at > 0 {
		p.at--
		w.put(p, w.sides[p.side].chains.of(w.sides[p.side].tree.Frames(p.node)[p.frame])[p.at], false)
		return 0
	}
	return w.outof(p, int(p.frame)-1)
}

// outof puts the last frame at or above one of a node's locations.
func (w *walker) outof(p place, from int) (self int64) {
	side := w.sides[p.side]
	for {
		frames := side.tree.Frames(p.node)
		for i := from; i >= 0; i-- {
			if chain := side.chains.of(frames[i]); len(chain) > 0 {
				p.frame, p.at = uint32(i), uint32(len(chain)-1)
				w.put(p, chain[p.at], false)
				return 0
			}
		}
		if p.node == 0 {
			return p.value
		}
		p.node = side.tree.Parent(p.node)
		from = len(side.tree.Frames(p.node)) - 1
	}
}

// roots returns where the walk down begins.
func (w *walker) roots() []place {
	var all []place
	for i, side := range w.sides {
		all = append(all, place{side: uint8(i), value: side.total[0], size: side.size[0]})
	}
	return all
}

// leaves puts the innermost frames of all stacks.
func (w *walker) leaves() (self int64) {
	for i, side := range w.sides {
		for n, size := range side.selfSize {
			if size != 0 {
				p := place{node: uint32(n), side: uint8(i), value: side.self[n], size: size}
				self += w.outof(p, len(side.tree.Frames(uint32(n)))-1)
			}
		}
	}
	return self
}

// outermost returns the places where a frame is on a stack for the first time.
func (w *walker) outermost(frame int32) []place {
	var all []place
	for i, side := range w.sides {
		at := side.firstIn(frame)
		for n := uint32(0); n < uint32(side.tree.Nodes()); {
			p, ok := place{}, false
			for j, l := range side.tree.Frames(n) {
				if k := at[l]; k > 0 {
					p, ok = place{n, uint32(j), k - 1, uint8(i), side.total[n], side.size[n]}, true
					break
				}
			}
			if !ok {
				n++
				continue
			}
			if p.size != 0 {
				all = append(all, p)
			}
			n = side.tree.End(n)
		}
	}
	return all
}

// firstIn returns for each location where a frame is first among its frames, + 1, 0 for nowhere.
func (w *weights) firstIn(frame int32) []uint32 {
	at := make([]uint32, w.side.p.Locations())
	for l := range at {
		at[l] = uint32(slices.Index(w.chains.of(uint32(l)), frame) + 1)
	}
	return at
}
