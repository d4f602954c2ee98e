// Package ranges makes ranges of addresses that overlap disjoint: each address goes to the
// best of the spans that cover it.
package ranges

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// A List is a sorted list of disjoint address ranges, each with a number that
// means something to its owner. The three columns are kept apart so that a
// search touches nothing but starts.
type List struct {
	Starts []uint64
	Sizes  []uint32
	Values []uint32
}

// Find returns the index of the range that holds v.
func (r *List) Find(v uint64) (int, bool) {
	i, exact := slices.BinarySearch(r.Starts, v)
	if !exact {
		i--
	}
	if i < 0 || v-r.Starts[i] >= uint64(r.Sizes[i]) {
		return 0, false
	}
	return i, true
}

// Add appends a range after all others.
func (r *List) Add(start, end uint64, value uint32) {
	if i := len(r.Starts) - 1; i >= 0 && r.Values[i] == value && r.Starts[i]+uint64(r.Sizes[i]) == start {
		start = r.Starts[i]
		r.Sizes[i] = clampSize(end - start)
		return
	}
	r.Starts = append(r.Starts, start)
	r.Sizes = append(r.Sizes, clampSize(end-start))
	r.Values = append(r.Values, value)
}

// Keep drops the ranges whose value is not wanted.
func (r *List) Keep(wanted func(value uint32) bool) {
	kept := List{Starts: r.Starts[:0], Sizes: r.Sizes[:0], Values: r.Values[:0]}
	for i, value := range r.Values {
		if wanted(value) {
			kept.Starts = append(kept.Starts, r.Starts[i])
			kept.Sizes = append(kept.Sizes, r.Sizes[i])
			kept.Values = append(kept.Values, value)
		}
	}
	*r = kept
}

// clampSize returns a size that fits its column: nothing is called by a name
// that starts 4 GiB before it.
func clampSize(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// A Span is a range that may overlap others.
type Span struct {
	Start, End uint64
	Value      uint32
	Rank       uint8 // the lower, the better
	Unsized    bool  // its end is a limit, not known
}

// Hidden is the rank of a span that takes its addresses from others and answers
// nothing itself.
const Hidden = math.MaxUint8

// Flatten turns spans into disjoint ranges: every address goes to the best of
// the spans that cover it. spans must be sorted by start; better is a strict
// order, negative when a wins. It takes time n·log n however they overlap.
func Flatten(spans []Span, better func(a, b *Span) int) List {
	r := List{
		Starts: make([]uint64, 0, len(spans)),
		Sizes:  make([]uint32, 0, len(spans)),
		Values: make([]uint32, 0, len(spans)),
	}
	open := &spanHeap{better: better}
	pos := uint64(0)
	for next := 0; ; {
		if len(open.spans) == 0 && isAlone(spans, next, pos) {
			if s := &spans[next]; s.Rank != Hidden {
				r.Add(s.Start, s.End, s.Value)
			}
			pos = spans[next].End
			next++
			continue
		}
		open.expire(pos)
		for ; next < len(spans) && spans[next].Start <= pos; next++ {
			if spans[next].End > pos {
				heap.Push(open, &spans[next])
			}
		}
		switch {
		case open.Len() > 0:
			best := open.spans[0]
			end := best.End
			if next < len(spans) {
				end = min(end, spans[next].Start)
			}
			if best.Rank != Hidden {
				r.Add(pos, end, best.Value)
			}
			pos = end
		case next < len(spans):
			pos = spans[next].Start
		default:
			return r
		}
	}
}

// Paint turns spans into disjoint ranges: every address goes to the last of the spans that cover
// it. It does what flatten does for that order, in a fraction of the time where they overlap: from
// the last one on, each takes the pieces that are still free.
func Paint(spans []Span) List {
	spans = slices.DeleteFunc(spans, func(s Span) bool { return s.Start >= s.End })
	if areInOrder(spans) {
		return inOrder(spans)
	}
	edges := make([]uint64, 0, 2*len(spans))
	for i := range spans {
		edges = append(edges, spans[i].Start, spans[i].End)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	owners := make([]uint32, len(edges)) // of the piece from an edge on: a span, from 1
	free := make([]uint32, len(edges))   // at or behind an edge, the first piece that may be free
	for i := range free {
		free[i] = uint32(i)
	}
	pieces := 0
	for i, s := range slices.Backward(spans) {
		at, _ := slices.BinarySearch(edges, s.Start)
		for p := firstFree(free, uint32(at)); edges[p] < s.End; p = firstFree(free, p) {
			owners[p], free[p] = uint32(i)+1, p+1
			pieces++
		}
	}
	r := WithRoom(min(pieces, len(edges)))
	for i, owner := range owners {
		if owner != 0 {
			r.Add(edges[i], edges[i+1], spans[owner-1].Value)
		}
	}
	return r.clip()
}

// firstFree returns the first free piece from p on. The last edge has none, and stays free.
func firstFree(free []uint32, p uint32) uint32 {
	for free[p] != p {
		free[p] = free[free[p]] // the next search is shorter
		p = free[p]
	}
	return p
}

// areInOrder reports whether spans are disjoint, and sorted.
func areInOrder(spans []Span) bool {
	for i := 1; i < len(spans); i++ {
		if spans[i].Start < spans[i-1].End {
			return false
		}
	}
	return true
}

// inOrder is paint for spans that are disjoint, and sorted.
func inOrder(spans []Span) List {
	r := WithRoom(len(spans))
	for i := range spans {
		r.Add(spans[i].Start, spans[i].End, spans[i].Value)
	}
	return r
}

// WithRoom returns an empty list with room for n ranges.
func WithRoom(n int) List {
	return List{Starts: make([]uint64, 0, n), Sizes: make([]uint32, 0, n), Values: make([]uint32, 0, n)}
}

// clip gives back what was too much room.
func (r *List) clip() List {
	if len(r.Starts) >= cap(r.Starts)/2 {
		return *r
	}
	return List{slices.Clone(r.Starts), slices.Clone(r.Sizes), slices.Clone(r.Values)}
}

// isAlone reports whether the next span covers what no other does: there is none
// before it that reaches beyond pos.
func isAlone(spans []Span, next int, pos uint64) bool {
	return next < len(spans) && spans[next].Start >= pos && spans[next].End > spans[next].Start &&
		(next+1 == len(spans) || spans[next+1].Start >= spans[next].End)
}

// SortByStart returns spans in the order that ByStart has, and those that are equal in
// it in the order that they had. It uses spans. A few passes over the bits of starts
// cost a fraction of comparing them, unless they are far apart.
func SortByStart(spans []Span) []Span {
	if slices.IsSortedFunc(spans, ByStart) {
		return spans
	}
	low, high := spans[0].Start, spans[0].Start
	for i := range spans {
		low, high = min(low, spans[i].Start), max(high, spans[i].Start)
	}
	if high-low > math.MaxUint32 {
		slices.SortStableFunc(spans, ByStart)
		return spans
	}
	from, to := spans, make([]Span, len(spans))
	for shift := 0; shift < 3*digitBits; shift += digitBits {
		var at [1<<digitBits + 1]int
		for i := range from {
			at[from[i].digit(low, shift)+1]++
		}
		for i := 1; i < len(at); i++ {
			at[i] += at[i-1]
		}
		for i := range from {
			key := from[i].digit(low, shift)
			to[at[key]] = from[i]
			at[key]++
		}
		from, to = to, from
	}
	return from
}

// digitBits is the size of a digit of what spans are sorted by. Three of them have room
// for an offset of 32 bits and for unsized.
const digitBits = 11

// digit returns a digit of what a span is sorted by, where none starts before low.
func (s *Span) digit(low uint64, shift int) uint64 {
	key := (s.Start - low) << 1
	if s.Unsized {
		key |= 1
	}
	return key >> shift & (1<<digitBits - 1)
}

// spanHeap is a heap (container/heap) of spans with the best one first.
type spanHeap struct {
	spans  []*Span
	better func(a, b *Span) int
}

// expire drops the spans that have become the best and end before or at pos.
func (h *spanHeap) expire(pos uint64) {
	for len(h.spans) > 0 && h.spans[0].End <= pos {
		heap.Pop(h)
	}
}

func (h *spanHeap) Len() int           { return len(h.spans) }
func (h *spanHeap) Less(i, j int) bool { return h.better(h.spans[i], h.spans[j]) < 0 }
func (h *spanHeap) Swap(i, j int)      { h.spans[i], h.spans[j] = h.spans[j], h.spans[i] }
func (h *spanHeap) Push(s any)         { h.spans = append(h.spans, s.(*Span)) }

func (h *spanHeap) Pop() any {
	last := h.spans[len(h.spans)-1]
	h.spans = h.spans[:len(h.spans)-1]
	return last
}

// Union returns the addresses of spans as disjoint ones in ascending order. It uses spans.
func Union(spans []Span) []Span {
	slices.SortFunc(spans, ByStart)
	all := spans[:0]
	for _, s := range spans {
		if n := len(all); n > 0 && s.Start <= all[n-1].End {
			all[n-1].End = max(all[n-1].End, s.End)
		} else {
			all = append(all, Span{Start: s.Start, End: s.End})
		}
	}
	return all
}

// ByStart sorts spans by where they start, those with a size first.
func ByStart(a, b Span) int {
	if c := cmp.Compare(a.Start, b.Start); c != 0 || a.Unsized == b.Unsized {
		return c
	}
	if a.Unsized {
		return 1
	}
	return -1
}

// SettleUnsized ends the spans without a size where the next one starts, and
// drops those that lie within one with a size.
func SettleUnsized(spans []Span) []Span {
	next := uint64(math.MaxUint64)
	for i := len(spans) - 1; i >= 0; i-- {
		if i+1 < len(spans) && spans[i+1].Start > spans[i].Start {
			next = spans[i+1].Start
		}
		if spans[i].Unsized {
			spans[i].End = min(spans[i].End, next)
		}
	}
	covered := uint64(0)
	return slices.DeleteFunc(spans, func(s Span) bool {
		if !s.Unsized {
			covered = max(covered, s.End)
		}
		return s.Unsized && s.Start < covered
	})
}

// Distinct returns addresses of any kind in their order, each once.
func Distinct[A ~uint64](addresses []A) []uint64 {
	distinct := make([]uint64, len(addresses))
	for i, a := range addresses {
		distinct[i] = uint64(a)
	}
	slices.Sort(distinct)
	return slices.Compact(distinct)
}
