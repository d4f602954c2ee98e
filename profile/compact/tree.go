package compact

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
)

// Tree is the stacks of a profile, with their common beginnings once. Its nodes are numbered
// from the root on, which is 0 and has no frames: a node comes before those below it, and
// these come before any other one.
type Tree struct {
	nodes   []node
	frames  frames
	stacks  int
	deepest int
}

// node is a run of frames, outermost first.
type node struct {
	at     uint32 // in frames
	n      uint32 // how many
	parent uint32
	end    uint32 // the number behind the last node below
}

// Nodes returns how many nodes there are, the root included.
func (t *Tree) Nodes() int { return len(t.nodes) }

// Len returns how many distinct stacks there are.
func (t *Tree) Len() int { return t.stacks }

// Deepest returns how many locations the deepest stack has.
func (t *Tree) Deepest() int { return t.deepest }

// Parent returns the node above, that of the root is itself.
func (t *Tree) Parent(n uint32) uint32 { return t.nodes[n].parent }

// End returns the number behind the last node below.
func (t *Tree) End(n uint32) uint32 { return t.nodes[n].end }

// Frames returns the locations of a node, the outermost first.
func (t *Tree) Frames(n uint32) []uint32 { return t.frames.at(t.nodes[n].at, t.nodes[n].n) }

// frames are lists of locations, in pieces of which none moves.
type frames struct {
	pieces [][]uint32
	count  int64
}

// A list is found by the piece and the place in it where it begins.
const (
	framesBits = 20
	framesSize = 1 << framesBits
	mostPieces = 1 << (32 - framesBits)
)

// room returns where a list of n can be put. The caller has to fill it.
func (f *frames) room(n int) (at uint32, list []uint32, ok bool) {
	last := len(f.pieces) - 1
	if last < 0 || cap(f.pieces[last])-len(f.pieces[last]) < n || len(f.pieces[last]) >= framesSize {
		if len(f.pieces) == mostPieces {
			return 0, nil, false
		}
		size := framesSize
		if last < 0 {
			size = 1 << 10
		}
		f.pieces = append(f.pieces, make([]uint32, 0, max(size, n)))
		last++
	}
	piece := f.pieces[last]
	from := len(piece)
	f.pieces[last] = piece[:from+n]
	f.count += int64(n)
	return uint32(last<<framesBits | from), f.pieces[last][from:], true
}

func (f *frames) at(at, n uint32) []uint32 {
	if n == 0 {
		return nil
	}
	piece, from := f.pieces[at>>framesBits], at&(framesSize-1)
	return piece[from : from+n : from+n]
}

// stackAt is a stack of a row, outermost frame first.
type stackAt struct{ at, n uint32 }

// buildTree returns the tree of stacks, and the node of each.
func buildTree(all *frames, stacks []stackAt, locations int) (Tree, []uint32) {
	order := sortStacks(all, stacks, locations)
	b := treeBuilder{all: all, tree: Tree{frames: *all}}
	return b.build(stacks, order)
}

type treeBuilder struct {
	all  *frames
	tree Tree
	path []pathNode
}

// pathNode is a node on the way to the stack at hand, and how deep it ends.
type pathNode struct {
	node  uint32
	depth uint32
}

func (b *treeBuilder) build(stacks []stackAt, order []uint32) (Tree, []uint32) {
	shared := b.shared(stacks, order)
	next := nextSmaller(shared)
	nodes := make([]uint32, len(stacks))
	b.path = []pathNode{{}}
	b.tree.nodes = append(make([]node, 0, countNodes(stacks, order, shared, next)), node{})
	var cuts []uint32
	for i, s := range order {
		stack := stacks[s]
		if i > 0 && shared[i] == sameStack {
			nodes[s] = nodes[order[i-1]]
			continue
		}
		b.tree.stacks++
		b.tree.deepest = max(b.tree.deepest, int(stack.n))
		from := uint32(0)
		if i > 0 {
			from = shared[i]
		}
		b.leave(from)
		// Where later stacks leave this one, the deepest place first.
		cuts = append(cuts[:0], stack.n)
		for j := following(shared, i+1); j < len(order) && shared[j] > from; j = int(next[j]) {
			if shared[j] < cuts[len(cuts)-1] {
				cuts = append(cuts, shared[j])
			}
		}
		for c := len(cuts) - 1; c >= 0; c-- {
			if cuts[c] > from {
				b.add(stack.at+from, cuts[c]-from, cuts[c])
				from = cuts[c]
			}
		}
		nodes[s] = b.path[len(b.path)-1].node
	}
	b.leave(0)
	b.tree.nodes[0].end = uint32(len(b.tree.nodes))
	return b.tree, nodes
}

// countNodes returns how many nodes the tree gets: a list that grows would leave as much garbage.
func countNodes(stacks []stackAt, order, shared, next []uint32) int {
	count := 1
	for i, s := range order {
		if i > 0 && shared[i] == sameStack {
			continue
		}
		from := uint32(0)
		if i > 0 {
			from = shared[i]
		}
		if stacks[s].n > from {
			count++
		}
		last := stacks[s].n
		for j := following(shared, i+1); j < len(order) && shared[j] > from; j = int(next[j]) {
			if shared[j] < last {
				last = shared[j]
				count++
			}
		}
	}
	return count
}

// following returns the first stack from i on that is not the same as the one before.
func following(shared []uint32, i int) int {
	for i < len(shared) && shared[i] == sameStack {
		i++
	}
	return i
}

// add adds a node below the last one of the path.
func (b *treeBuilder) add(at, n, depth uint32) {
	parent := b.path[len(b.path)-1].node
	b.path = append(b.path, pathNode{uint32(len(b.tree.nodes)), depth})
	b.tree.nodes = append(b.tree.nodes, node{at: at, n: n, parent: parent})
}

// leave goes back to a depth, where a node ends.
func (b *treeBuilder) leave(depth uint32) {
	for len(b.path) > 1 && b.path[len(b.path)-1].depth > depth {
		b.tree.nodes[b.path[len(b.path)-1].node].end = uint32(len(b.tree.nodes))
		b.path = b.path[:len(b.path)-1]
	}
}

// sameStack is shared by stacks that are the same.
const sameStack = 1<<32 - 1

// shared returns how many frames each stack has in common with the one before it.
func (b *treeBuilder) shared(stacks []stackAt, order []uint32) []uint32 {
	shared := make([]uint32, len(order))
	var before []uint32
	for i, s := range order {
		stack := b.all.at(stacks[s].at, stacks[s].n)
		n := 0
		for n < len(stack) && n < len(before) && stack[n] == before[n] {
			n++
		}
		shared[i] = uint32(n)
		if i > 0 && n == len(stack) && n == len(before) {
			shared[i] = sameStack
		}
		before = stack
	}
	return shared
}

// nextSmaller returns for each number the next one that is smaller, or how many there are.
// Those of stacks that are the same do not count.
func nextSmaller(numbers []uint32) []uint32 {
	next := make([]uint32, len(numbers))
	for i := len(numbers) - 1; i >= 0; i-- {
		at := i + 1
		for at < len(numbers) && numbers[at] >= numbers[i] {
			at = int(next[at])
		}
		next[i] = uint32(at)
	}
	return next
}

// sortStacks returns the numbers of stacks in the order of their frames, outermost first.
func sortStacks(all *frames, stacks []stackAt, locations int) []uint32 {
	bits := 1
	for locations>>bits != 0 { // 0 is the end of a stack
		bits++
	}
	s := stackSorter{all: all, stacks: stacks, bits: bits, each: 64 / bits}
	s.keys = make([]stackKey, len(stacks))
	for i := range s.keys {
		s.keys[i].stack = uint32(i)
	}
	s.spare = make(chan struct{}, runtime.GOMAXPROCS(0))
	s.sort(s.keys, 0)
	s.parts.Wait()
	order := make([]uint32, len(stacks))
	for i, k := range s.keys {
		order[i] = k.stack
	}
	return order
}

// stackSorter sorts stacks by a few frames at a time, which it has beside them: the stacks
// themselves are anywhere in memory.
type stackSorter struct {
	all    *frames
	stacks []stackAt
	keys   []stackKey
	bits   int
	each   int // frames in a key
	parts  sync.WaitGroup
	spare  chan struct{}
}

type stackKey struct {
	frames uint64
	stack  uint32
}

// sort sorts keys whose stacks are the same up to a depth.
func (s *stackSorter) sort(keys []stackKey, depth int) {
	for len(keys) > 1 {
		ended := s.load(keys, depth)
		if !isSorted(keys) {
			slices.SortFunc(keys, func(a, b stackKey) int {
				return cmp.Or(cmp.Compare(a.frames, b.frames), cmp.Compare(a.stack, b.stack))
			})
		}
		depth += s.each
		if keys[0].frames == keys[len(keys)-1].frames {
			if ended {
				return
			}
			continue // without going deeper into calls
		}
		s.sortRuns(keys, depth)
		return
	}
}

func isSorted(keys []stackKey) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i-1].frames > keys[i].frames {
			return false
		}
	}
	return true
}

// load fills the keys, and reports whether the last one's stack ends.
func (s *stackSorter) load(keys []stackKey, depth int) (ended bool) {
	for i := range keys {
		at := s.stacks[keys[i].stack]
		stack := s.all.at(at.at, at.n)
		key, n := uint64(0), 0
		for n < s.each && depth+n < len(stack) {
			key = key<<s.bits | uint64(stack[depth+n]+1)
			n++
		}
		ended = n < s.each
		keys[i].frames = key << ((s.each - n) * s.bits)
	}
	return ended
}

// runOfItsOwn is how many stacks are sorted on another processor.
const runOfItsOwn = 1 << 14

// sortRuns sorts those whose keys are the same by what comes behind.
func (s *stackSorter) sortRuns(keys []stackKey, depth int) {
	ends := uint64(1)<<s.bits - 1 // a key that ends has no last frame
	for from := 0; from < len(keys); {
		to := from + 1
		for to < len(keys) && keys[to].frames == keys[from].frames {
			to++
		}
		run := keys[from:to]
		from = to
		if len(run) == 1 || run[0].frames&ends == 0 {
			continue
		}
		if len(run) >= runOfItsOwn {
			select {
			case s.spare <- struct{}{}:
				s.parts.Go(func() {
					s.sort(run, depth)
					<-s.spare
				})
				continue
			default:
			}
		}
		s.sort(run, depth)
	}
}
