package symbol

import (
	"container/heap"
	"math"
	"slices"

	"hallmark/internal/dwarf"
)

// ranges is a sorted list of disjoint address ranges, each with a number that
// means something to its owner. The three columns are kept apart so that a
// search touches nothing but starts.
type ranges struct {
	starts []uint64
	sizes  []uint32
	values []uint32
}

// find returns the index of the range that holds v.
func (r *ranges) find(v uint64) (int, bool) {
	i, exact := slices.BinarySearch(r.starts, v)
	if !exact {
		i--
	}
	if i < 0 || v-r.starts[i] >= uint64(r.sizes[i]) {
		return 0, false
	}
	return i, true
}

// add appends a range after all others.
func (r *ranges) add(start, end uint64, value uint32) {
	if i := len(r.starts) - 1; i >= 0 && r.values[i] == value && r.starts[i]+uint64(r.sizes[i]) == start {
		start = r.starts[i]
		r.sizes[i] = clampSize(end - start)
		return
	}
	r.starts = append(r.starts, start)
	r.sizes = append(r.sizes, clampSize(end-start))
	r.values = append(r.values, value)
}

// keep drops the ranges whose value is not wanted.
func (r *ranges) keep(wanted func(value uint32) bool) {
	kept := ranges{starts: r.starts[:0], sizes: r.sizes[:0], values: r.values[:0]}
	for i, value := range r.values {
		if wanted(value) {
			kept.starts = append(kept.starts, r.starts[i])
			kept.sizes = append(kept.sizes, r.sizes[i])
			kept.values = append(kept.values, value)
		}
	}
	*r = kept
}

// clampSize returns a size that fits its column: nothing is called by a name
// that starts 4 GiB before it.
func clampSize(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// span is a range that may overlap others.
type span struct {
	start, end uint64
	value      uint32
	rank       uint8 // the lower, the better
	unsized    bool  // its end is a limit, not known
}

// hidden is the rank of a span that takes its addresses from others and answers
// nothing itself.
const hidden = math.MaxUint8

// flatten turns spans into disjoint ranges: every address goes to the best of
// the spans that cover it. spans must be sorted by start; better is a strict
// order, negative when a wins. It takes time n·log n however they overlap.
func flatten(spans []span, better func(a, b *span) int) ranges {
	r := ranges{
		starts: make([]uint64, 0, len(spans)),
		sizes:  make([]uint32, 0, len(spans)),
		values: make([]uint32, 0, len(spans)),
	}
	open := &spanHeap{better: better}
	pos := uint64(0)
	for next := 0; ; {
		if len(open.spans) == 0 && isAlone(spans, next, pos) {
			if s := &spans[next]; s.rank != hidden {
				r.add(s.start, s.end, s.value)
			}
			pos = spans[next].end
			next++
			continue
		}
		open.expire(pos)
		for ; next < len(spans) && spans[next].start <= pos; next++ {
			if spans[next].end > pos {
				heap.Push(open, &spans[next])
			}
		}
		switch {
		case open.Len() > 0:
			best := open.spans[0]
			end := best.end
			if next < len(spans) {
				end = min(end, spans[next].start)
			}
			if best.rank != hidden {
				r.add(pos, end, best.value)
			}
			pos = end
		case next < len(spans):
			pos = spans[next].start
		default:
			return r
		}
	}
}

// paint turns spans into disjoint ranges: every address goes to the last of the spans that cover
// it. It does what flatten does for that order, in a fraction of the time where they overlap: from
// the last one on, each takes the pieces that are still free.
func paint(spans []span) ranges {
	spans = slices.DeleteFunc(spans, func(s span) bool { return s.start >= s.end })
	if areInOrder(spans) {
		return inOrder(spans)
	}
	edges := make([]uint64, 0, 2*len(spans))
	for i := range spans {
		edges = append(edges, spans[i].start, spans[i].end)
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
		at, _ := slices.BinarySearch(edges, s.start)
		for p := firstFree(free, uint32(at)); edges[p] < s.end; p = firstFree(free, p) {
			owners[p], free[p] = uint32(i)+1, p+1
			pieces++
		}
	}
	r := makeRanges(min(pieces, len(edges)))
	for i, owner := range owners {
		if owner != 0 {
			r.add(edges[i], edges[i+1], spans[owner-1].value)
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
func areInOrder(spans []span) bool {
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			return false
		}
	}
	return true
}

// inOrder is paint for spans that are disjoint, and sorted.
func inOrder(spans []span) ranges {
	r := makeRanges(len(spans))
	for i := range spans {
		r.add(spans[i].start, spans[i].end, spans[i].value)
	}
	return r
}

func makeRanges(n int) ranges {
	return ranges{starts: make([]uint64, 0, n), sizes: make([]uint32, 0, n), values: make([]uint32, 0, n)}
}

// clip gives back what was too much room.
func (r *ranges) clip() ranges {
	if len(r.starts) >= cap(r.starts)/2 {
		return *r
	}
	return ranges{slices.Clone(r.starts), slices.Clone(r.sizes), slices.Clone(r.values)}
}

// isAlone reports whether the next span covers what no other does: there is none
// before it that reaches beyond pos.
func isAlone(spans []span, next int, pos uint64) bool {
	return next < len(spans) && spans[next].start >= pos && spans[next].end > spans[next].start &&
		(next+1 == len(spans) || spans[next+1].start >= spans[next].end)
}

// sortByStart returns spans in the order that byStart has, and those that are equal in
// it in the order that they had. It uses spans. A few passes over the bits of starts
// cost a fraction of comparing them, unless they are far apart.
func sortByStart(spans []span) []span {
	if slices.IsSortedFunc(spans, byStart) {
		return spans
	}
	low, high := spans[0].start, spans[0].start
	for i := range spans {
		low, high = min(low, spans[i].start), max(high, spans[i].start)
	}
	if high-low > math.MaxUint32 {
		slices.SortStableFunc(spans, byStart)
		return spans
	}
	from, to := spans, make([]span, len(spans))
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
func (s *span) digit(low uint64, shift int) uint64 {
	key := (s.start - low) << 1
	if s.unsized {
		key |= 1
	}
	return key >> shift & (1<<digitBits - 1)
}

// spanHeap is a heap (container/heap) of spans with the best one first.
type spanHeap struct {
	spans  []*span
	better func(a, b *span) int
}

// expire drops the spans that have become the best and end before or at pos.
func (h *spanHeap) expire(pos uint64) {
	for len(h.spans) > 0 && h.spans[0].end <= pos {
		heap.Pop(h)
	}
}

func (h *spanHeap) Len() int           { return len(h.spans) }
func (h *spanHeap) Less(i, j int) bool { return h.better(h.spans[i], h.spans[j]) < 0 }
func (h *spanHeap) Swap(i, j int)      { h.spans[i], h.spans[j] = h.spans[j], h.spans[i] }
func (h *spanHeap) Push(s any)         { h.spans = append(h.spans, s.(*span)) }

func (h *spanHeap) Pop() any {
	last := h.spans[len(h.spans)-1]
	h.spans = h.spans[:len(h.spans)-1]
	return last
}

// union returns the addresses of spans as disjoint ranges in ascending order.
func union(spans []span) []dwarf.Range {
	slices.SortFunc(spans, byStart)
	var all []dwarf.Range
	for _, s := range spans {
		if n := len(all); n > 0 && s.start <= all[n-1].High {
			all[n-1].High = max(all[n-1].High, s.end)
		} else {
			all = append(all, dwarf.Range{Low: s.start, High: s.end})
		}
	}
	return all
}
