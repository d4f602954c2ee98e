package query

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/reason"
)

// ErrNoPath is the error for frames that do not follow each other on any stack. It arrives
// wrapped.
var ErrNoPath = errors.New("no stack has these frames")

// TreeOptions say which part of a tree is wanted.
type TreeOptions struct {
	Inverted   bool    // from the innermost frames to their callers
	Root       []int   // the frames, the first one of the tree's first level, below which the tree begins
	MaxNodes   int     // the most that Nodes has; 0 means 10,000
	MaxDepth   int     // levels below the root; 0 means 512
	MinShare   float64 // of the root: what counts less is left out; 0 means 1/4000, and less than 0 that all is wanted
	Normalized bool    // the base counts by Selection.Scale
	Fold       bool    // a function that calls itself at once is one node, with what all of its calls call
}

// Tree is a tree of calls, as far as it can be seen: of what is wanted the nodes that count
// most.
type Tree struct {
	Nodes     []Node // the root first; parents before children, children by what they count
	Ancestors []Node // of the root, the outermost first; Parent and what is cut are not set
	Scale     float64
}

// Node is a frame and those that led to it.
type Node struct {
	Parent  int32 // in Nodes, -1 of the root
	Frame   int32 // in Set.Frames, -1 of the whole
	Depth   int32 // below the root
	Inlined bool  // everywhere it is inlined into its parent
	Total   int64
	Self    int64

	BaseTotal, BaseSelf int64

	// Size and SelfSize are Total and Self without the signs of values, by which nodes are chosen and ordered: what a
	// difference adds up to may be nothing.
	Size, SelfSize, BaseSize, BaseSelfSize int64

	Folded int32 // calls of itself that are in the node, where they are most on a stack

	CutNodes     int32 // children that are left out
	Cut, BaseCut int64 // what they count

	// Ends are why stacks begin here of which outer frames are missing; of the first level only,
	// and not where the tree is inverted.
	Ends []End
}

// End is why stacks have no more frames.
type End struct {
	Code, Reason, Advice string
	Value                int64
	Unsure               bool // nobody knows whether they have more frames
}

func (o *TreeOptions) defaults() {
	o.MaxNodes = cmp.Or(o.MaxNodes, 10_000)
	o.MaxDepth = cmp.Or(o.MaxDepth, 512)
	if o.MinShare == 0 {
		o.MinShare = 1.0 / 4000
	}
}

// Tree returns the tree of the selection.
func (s *Selection) Tree(o TreeOptions) (*Tree, error) {
	b := s.builder(o)
	root := step{frame: -1}
	for i, w := range s.sides {
		root.value[i], root.size[i] = w.total[0], w.size[0]
	}
	if !o.Inverted {
		root.places = b.walkers[0].roots()
	}
	if o.Inverted || len(o.Root) > 0 {
		return b.build(root, o.Root)
	}
	var ends sync.WaitGroup
	ends.Go(s.findEnds)
	tree, err := b.build(root, nil)
	ends.Wait()
	if err == nil {
		s.addEnds(tree)
	}
	return tree, err
}

// Callers returns the tree of those that called a frame: its root is the frame, where it is
// first on a stack.
func (s *Selection) Callers(frame int, o TreeOptions) (*Tree, error) {
	o.Inverted = true
	return s.sandwich(frame, o)
}

// Callees returns the tree of what a frame called. Its root is the frame, where it is first on a
// stack.
func (s *Selection) Callees(frame int, o TreeOptions) (*Tree, error) {
	o.Inverted = false
	return s.sandwich(frame, o)
}

func (s *Selection) sandwich(frame int, o TreeOptions) (*Tree, error) {
	if frame < 0 || frame >= len(s.set.frames) {
		return nil, fmt.Errorf("%w: there is no frame %d", ErrNoPath, frame)
	}
	b := s.builder(o)
	root := step{frame: int32(frame), places: b.walkers[0].outermost(int32(frame))}
	for _, p := range root.places {
		root.value[p.side] += p.value
		root.size[p.side] += p.size
	}
	return b.build(root, o.Root)
}

// treeBuilder takes the largest nodes first.
type treeBuilder struct {
	walkers []*walker // one for each processor that is worth it
	o       TreeOptions
	scale   float64
	min     float64
	tree    *Tree
	queue   queue
}

// waiting is a node that may be in the tree.
type waiting struct {
	step   step
	parent int32
	depth  int32
	rank   float64
	number int
	next   *neighbors // once they are known
}

// neighbors are what is next to a node and counts enough, what ends there, and what the others count that are next to
// it.
type neighbors struct {
	steps  []step
	self   [2]int64
	cut    sum
	cuts   int32
	folded int32
}

// addTo notes in a node what is next to it.
func (n *neighbors) addTo(node *Node) {
	node.Self, node.BaseSelf, node.Folded = n.self[0], n.self[1], n.folded
	node.Cut, node.BaseCut, node.CutNodes = n.cut.value[0], n.cut.value[1], n.cuts
	all := n.cut
	for i := range n.steps {
		all.add(&n.steps[i])
	}
	node.SelfSize, node.BaseSelfSize = node.Size-all.size[0], node.BaseSize-all.size[1]
}

func (s *Selection) builder(o TreeOptions) *treeBuilder {
	o.defaults()
	b := &treeBuilder{o: o, scale: 1, tree: &Tree{}}
	nodes := 0
	for _, side := range s.sides {
		nodes += side.tree.Nodes()
	}
	for range min(runtime.GOMAXPROCS(0), 1+nodes/nodesOfAWalker) {
		b.walkers = append(b.walkers, newWalker(s.sides, len(s.set.frames)))
	}
	if o.Normalized {
		b.scale = s.Scale()
	}
	b.tree.Scale = b.scale
	return b
}

// rank is how much a node counts beside others.
func (b *treeBuilder) rank(size [2]int64) float64 {
	return max(float64(size[0]), b.scale*float64(size[1]))
}

func (b *treeBuilder) build(root step, path []int) (*Tree, error) {
	for i, frame := range path {
		node := b.node(&root, -1, int32(i-len(path)))
		next := b.next(b.walkers[0], &root, 0)
		next.addTo(&node)
		node.Cut, node.BaseCut, node.CutNodes = 0, 0, 0
		b.tree.Ancestors = append(b.tree.Ancestors, node)
		at := slices.IndexFunc(next.steps, func(s step) bool { return int(s.frame) == frame })
		if at < 0 {
			return nil, fmt.Errorf("%w: frame %d of %d", ErrNoPath, i+1, len(path))
		}
		root = next.steps[at]
	}
	b.min = b.o.MinShare * b.rank(root.size)
	b.queue.push(&waiting{step: root, parent: -1, rank: math.Inf(1)})
	for len(b.queue.all) > 0 && len(b.tree.Nodes) < b.o.MaxNodes {
		b.add(heap.Pop(&b.queue).(*waiting))
	}
	for _, w := range b.queue.all { // there is no room for them
		n := &b.tree.Nodes[w.parent]
		n.CutNodes++
		n.Cut += w.step.value[0]
		n.BaseCut += w.step.value[1]
	}
	return b.tree, nil
}

func (b *treeBuilder) node(s *step, parent, depth int32) Node {
	return Node{
		Parent: parent, Frame: s.frame, Depth: depth, Inlined: s.inline && parent >= 0,
		Total: s.value[0], BaseTotal: s.value[1], Size: s.size[0], BaseSize: s.size[1],
	}
}

func (b *treeBuilder) add(w *waiting) {
	if w.next == nil {
		b.lookAround(w)
	}
	number := int32(len(b.tree.Nodes))
	node := b.node(&w.step, w.parent, w.depth)
	w.next.addTo(&node)
	b.tree.Nodes = append(b.tree.Nodes, node)
	for _, s := range w.next.steps {
		b.queue.push(&waiting{step: s, parent: number, depth: w.depth + 1, rank: b.rank(s.size)})
	}
}

const (
	nodesOfAWalker = 1 << 15 // of the profiles' trees, for which another processor is worth it
	mostTogether   = 64      // nodes that the walkers look around at the same time
)

// lookAround finds out what is next to a node. With several processors it does so at once for some of the nodes that
// are soon in the tree: those that count most are in the beginning of the queue.
func (b *treeBuilder) lookAround(w *waiting) {
	together := append(make([]*waiting, 0, mostTogether), w)
	if len(b.walkers) > 1 {
		room := min(mostTogether, b.o.MaxNodes-len(b.tree.Nodes))
		for _, other := range b.queue.all {
			if len(together) >= room {
				break
			}
			if other.next == nil {
				together = append(together, other)
			}
		}
	}
	var taken atomic.Int32
	look := func(by *walker) {
		for i := int(taken.Add(1)); i <= len(together); i = int(taken.Add(1)) {
			one := together[i-1]
			least := max(b.min, math.SmallestNonzeroFloat64)
			if int(one.depth) >= b.o.MaxDepth {
				least = math.Inf(1)
			}
			one.next = b.next(by, &one.step, least)
			one.step.places = nil
		}
	}
	var others sync.WaitGroup
	for _, by := range b.walkers[1:min(len(b.walkers), len(together))] {
		others.Go(func() { look(by) })
	}
	look(b.walkers[0])
	others.Wait()
}

// next returns what is next to a node, as far as it counts so much at least.
func (b *treeBuilder) next(w *walker, s *step, least float64) *neighbors {
	n := &neighbors{}
	if b.o.Fold && s.frame >= 0 {
		w.same = s.frame
		defer func() { w.same = noFrame }()
	}
	switch {
	case b.o.Inverted && s.frame < 0:
		for i, side := range w.sides {
			n.self[i] = side.self[0]
		}
		w.leaves()
	case b.o.Inverted:
		for _, p := range s.places {
			n.self[p.side] += w.up(p)
		}
	case s.frame < 0:
		for _, p := range s.places {
			n.self[p.side] += w.into(p, 0)
		}
	default:
		for _, p := range s.places {
			n.self[p.side] += w.down(p)
		}
	}
	for len(w.again) > 0 { // one call deeper each time
		n.folded++
		places := w.again
		w.again = nil
		for _, p := range places {
			if b.o.Inverted {
				n.self[p.side] += w.up(p)
			} else {
				n.self[p.side] += w.down(p)
			}
		}
	}
	n.steps, n.cut, n.cuts = w.take(b.rank, least)
	return n
}

// queue has the largest node first, and of the same the one that came first.
type queue struct {
	all  []*waiting
	next int
}

func (q *queue) push(w *waiting) {
	w.number = q.next
	q.next++
	heap.Push(q, w)
}

func (q *queue) Len() int { return len(q.all) }
func (q *queue) Less(i, j int) bool {
	a, b := q.all[i], q.all[j]
	return a.rank > b.rank || a.rank == b.rank && a.number < b.number
}
func (q *queue) Swap(i, j int) { q.all[i], q.all[j] = q.all[j], q.all[i] }
func (q *queue) Push(w any)    { q.all = append(q.all, w.(*waiting)) }
func (q *queue) Pop() any {
	last := len(q.all) - 1
	w := q.all[last]
	q.all[last], q.all = nil, q.all[:last]
	return w
}

func (s *Selection) findEnds() { s.ends.once.Do(func() { s.ends.byTop = s.sides[0].ends() }) }

// addEnds notes at the outermost frames why there are none outside them.
func (s *Selection) addEnds(t *Tree) {
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.Parent == 0 {
			n.Ends = s.ends.byTop[n.Frame]
		}
	}
}

// ends returns why stacks end, by their outermost frames.
func (w *weights) ends() map[int32][]End {
	type key struct {
		top int32
		why reason.Reason
	}
	p := w.side.p
	why, some := make([]reason.Reason, p.LabelSets()), false
	for set := range why {
		why[set], _ = endOf(p, uint32(set))
		some = some || why[set] != reason.None
	}
	if !some {
		return nil
	}
	top := w.tops()
	sum := map[key]int64{}
	for row, part := range w.rows {
		if r := why[p.Labels(row)]; r != reason.None && r != reason.NoUserStack {
			sum[key{top[p.Node(row)], r}] += part.of(w.value(row))
		}
	}
	out := map[int32][]End{}
	for k, v := range sum {
		out[k.top] = append(out[k.top], End{k.why.Code(), k.why.String(), k.why.Advice(), v, k.why.Unsure()})
	}
	for _, ends := range out {
		slices.SortFunc(ends, func(a, b End) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Code, b.Code)) })
	}
	return out
}

// endOf returns why stacks of a set of labels end, and whether they say so.
func endOf(p *compact.Profile, set uint32) (reason.Reason, bool) {
	for _, l := range p.LabelSet(set) {
		if l.IsText {
			if why, ok := profile.EndOf(l.Key, l.Text); ok {
				return why, true
			}
		}
	}
	return reason.None, false
}

// tops returns the outermost frame that is shown, by node, -1 for none.
func (w *weights) tops() []int32 {
	top := make([]int32, w.tree.Nodes())
	for n := range top {
		top[n] = -1
		if n > 0 {
			top[n] = top[w.tree.Parent(uint32(n))]
		}
		for _, l := range w.tree.Frames(uint32(n)) {
			if top[n] >= 0 {
				break
			}
			if chain := w.chains.of(l); len(chain) > 0 {
				top[n] = chain[0]
			}
		}
	}
	return top
}

// Found is the frames that match an expression.
type Found struct {
	Frames           []int // numbers
	Total, BaseTotal int64 // of the stacks that have any of them
}

// Find returns the frames whose name, source file or binary matches, and what the stacks count
// that have any. It ends with ctx.
func (s *Selection) Find(ctx context.Context, re *regexp.Regexp) (Found, error) {
	match, err := s.set.matching(ctx, re)
	if err != nil {
		return Found{}, err
	}
	out := Found{Frames: []int{}}
	have := make([]bool, len(s.set.frames))
	for _, w := range s.sides {
		for at, f := range w.chains.frames {
			have[f] = have[f] || match.in(w.chains, uint32(at))
		}
	}
	for i, yes := range have {
		if yes {
			out.Frames = append(out.Frames, i)
		}
	}
	for i, w := range s.sides {
		sum := int64(0)
		for n, have := range w.having(w.chains, match.in) {
			if have {
				sum += w.selfSize[n]
			}
		}
		if i == 0 {
			out.Total = sum
		} else {
			out.BaseTotal = sum
		}
	}
	return out, nil
}
