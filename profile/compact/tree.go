package compact

import (
	"cmp"
	"math/bits"
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
func buildTree(all *frames, stacks *vec[stackAt], locations int) (Tree, []uint32) {
	b := treeBuilder{all: all, stacks: stacks, sorted: sortStacks(all, stacks, locations), tree: Tree{frames: *all}}
	b.compare()
	return b.build()
}

type treeBuilder struct {
	all    *frames
	stacks *vec[stackAt]
	sorted []stackKey // what was a key are two numbers: see compare
	tree   Tree
	path   []pathNode
	cuts   []uint32
}

// pathNode is a node on the way to the stack at hand, and how deep it ends.
type pathNode struct {
	node  uint32
	depth uint32
}

// shared returns how many frames a stack has in common with the one before it.
func (b *treeBuilder) shared(i int) uint32 { return uint32(b.sorted[i].frames) }

// next returns the next stack that has less in common with the one before it, or how many there
// are.
func (b *treeBuilder) next(i int) int { return int(b.sorted[i].frames >> 32) }

// sameStack is shared by stacks that are the same.
const sameStack = 1<<32 - 1

// compare finds out for each stack what shared and next return, and puts them where its key was:
// lists of their own would take as much memory as the tree.
func (b *treeBuilder) compare() {
	var parts sync.WaitGroup
	share := max(len(b.sorted)/runtime.GOMAXPROCS(0)+1, runOfItsOwn)
	for from := 0; from < len(b.sorted); from += share {
		parts.Go(func() { b.compareFrom(from, min(from+share, len(b.sorted))) })
	}
	parts.Wait()
	for i := len(b.sorted) - 1; i >= 0; i-- {
		at := i + 1
		for at < len(b.sorted) && b.shared(at) >= b.shared(i) {
			at = b.next(at)
		}
		b.sorted[i].frames |= uint64(at) << 32
	}
}

// compareFrom finds out for some stacks how many frames each has in common with the one before it.
func (b *treeBuilder) compareFrom(from, to int) {
	var before []uint32
	if from > 0 {
		before = b.stack(from - 1)
	}
	for i := from; i < to; i++ {
		stack := b.stack(i)
		n := 0
		for n < len(stack) && n < len(before) && stack[n] == before[n] {
			n++
		}
		b.sorted[i].frames = uint64(n)
		if i > 0 && n == len(stack) && n == len(before) {
			b.sorted[i].frames = sameStack
		}
		before = stack
	}
}

func (b *treeBuilder) stack(i int) []uint32 {
	at := b.stacks.at(int(b.sorted[i].stack))
	return b.all.at(at.at, at.n)
}

// beginning returns how much of a stack is in the tree when those before it are, and false for
// one that is the same as the one before it.
func (b *treeBuilder) beginning(i int) (depth uint32, isNew bool) {
	if i == 0 {
		return 0, true
	}
	return b.shared(i), b.shared(i) != sameStack
}

// ends returns the depths behind one where nodes of a stack end, the deepest first: its own end,
// and where later stacks leave it.
func (b *treeBuilder) ends(i int, from uint32) []uint32 {
	cuts := append(b.cuts[:0], b.stacks.at(int(b.sorted[i].stack)).n)
	j := i + 1
	for j < len(b.sorted) && b.shared(j) == sameStack {
		j++
	}
	for ; j < len(b.sorted) && b.shared(j) > from; j = b.next(j) {
		if b.shared(j) < cuts[len(cuts)-1] {
			cuts = append(cuts, b.shared(j))
		}
	}
	b.cuts = cuts
	if cuts[0] == from { // it has no frames
		return nil
	}
	return cuts
}

func (b *treeBuilder) build() (Tree, []uint32) {
	count := 1 // a list of nodes that grows would leave as much garbage
	for i := range b.sorted {
		if from, isNew := b.beginning(i); isNew {
			count += len(b.ends(i, from))
		}
	}
	b.tree.nodes = append(make([]node, 0, count), node{})
	b.path = []pathNode{{}}
	nodes := make([]uint32, len(b.sorted))
	for i, k := range b.sorted {
		stack := b.stacks.at(int(k.stack))
		from, isNew := b.beginning(i)
		if !isNew {
			nodes[k.stack] = nodes[b.sorted[i-1].stack]
			continue
		}
		b.tree.stacks++
		b.tree.deepest = max(b.tree.deepest, int(stack.n))
		b.leave(from)
		for _, end := range slices.Backward(b.ends(i, from)) {
			b.add(stack.at+from, end-from, end)
			from = end
		}
		nodes[k.stack] = b.path[len(b.path)-1].node
	}
	b.leave(0)
	b.tree.nodes[0].end = uint32(len(b.tree.nodes))
	return b.tree, nodes
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

// sortStacks returns the stacks in the order of their frames, outermost first.
func sortStacks(all *frames, stacks *vec[stackAt], locations int) []stackKey {
	bits := 1
	for locations>>bits != 0 { // 0 is the end of a stack
		bits++
	}
	s := stackSorter{all: all, stacks: stacks, bits: bits, each: 64 / bits}
	s.spare = make(chan struct{}, runtime.GOMAXPROCS(0))
	keys := make([]stackKey, stacks.n)
	for i := range keys {
		keys[i].stack = uint32(i)
	}
	s.sort(keys, 0)
	s.parts.Wait()
	return keys
}

// stackSorter sorts stacks by a few frames at a time, which it has beside them: the stacks
// themselves are anywhere in memory.
type stackSorter struct {
	all    *frames
	stacks *vec[stackAt]
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
			s.order(keys)
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

// beside has f run on another processor if there is one to spare, and reports whether.
func (s *stackSorter) beside(wait *sync.WaitGroup, f func()) bool {
	select {
	case s.spare <- struct{}{}:
		wait.Go(func() {
			f()
			<-s.spare
		})
		return true
	default:
		return false
	}
}

// order sorts keys by eight bits at a time, in place (American flag sort: McIlroy, Bostic and McIlroy, "Engineering
// Radix Sort", 1993).
func (s *stackSorter) order(keys []stackKey) {
	if len(keys) < leastForBits {
		slices.SortFunc(keys, func(a, b stackKey) int { return cmp.Compare(a.frames, b.frames) })
		return
	}
	some, all := uint64(0), ^uint64(0)
	for i := range keys {
		some, all = some|keys[i].frames, all&keys[i].frames
	}
	if some == all {
		return
	}
	shift := max(bits.Len64(some&^all)-8, 0) // the bits above are the same ones
	ends := sortByByte(keys, shift)
	var others sync.WaitGroup
	from := 0
	for _, to := range ends {
		part := keys[from:to]
		from = to
		if len(part) < 2 || shift == 0 || len(part) >= runOfItsOwn && s.beside(&others, func() { s.order(part) }) {
			continue
		}
		s.order(part)
	}
	others.Wait()
}

// leastForBits is how many keys are sorted by bits.
const leastForBits = 64

// sortByByte sorts keys by eight bits, and returns where those of each value end.
func sortByByte(keys []stackKey, shift int) (ends [256]int) {
	for i := range keys {
		ends[uint8(keys[i].frames>>shift)]++
	}
	var next [256]int // where the next key of a value goes
	sum := 0
	for v, n := range ends {
		next[v] = sum
		sum += n
		ends[v] = sum
	}
	for v, end := range ends {
		for next[v] < end {
			k := keys[next[v]]
			for {
				to := uint8(k.frames >> shift)
				if int(to) == v {
					break
				}
				at := next[to]
				next[to]++
				k, keys[at] = keys[at], k
			}
			keys[next[v]] = k
			next[v]++
		}
	}
	return ends
}

// load fills the keys, and reports whether the last one's stack ends.
func (s *stackSorter) load(keys []stackKey, depth int) (ended bool) {
	if half := len(keys) / 2; half >= runOfItsOwn {
		var other sync.WaitGroup
		if s.beside(&other, func() { s.load(keys[:half], depth) }) {
			ended = s.load(keys[half:], depth)
			other.Wait()
			return ended
		}
	}
	for i := range keys {
		at := s.stacks.at(int(keys[i].stack))
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
		if len(run) >= runOfItsOwn && s.beside(&s.parts, func() { s.sort(run, depth) }) {
			continue
		}
		s.sort(run, depth)
	}
}
