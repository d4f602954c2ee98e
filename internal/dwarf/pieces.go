package dwarf

import (
	"cmp"
	"math"
	"slices"
)

// paint appends to pieces which span an address belongs to: of those that claim
// it, the one with the highest scope. It takes time n·log n however they overlap.
func (r *Reader) paint(pieces []Piece, spans []span) []Piece {
	spans = r.sortSpans(spans)
	open := spanHeap{spans: spans, heap: r.heap[:0]}
	next, pos := 0, uint64(0)
	for next < len(spans) || len(open.heap) > 0 {
		if len(open.heap) == 0 {
			pos = spans[next].low
		}
		for ; next < len(spans) && spans[next].low <= pos; next++ {
			open.push(int32(next))
		}
		best := open.best()
		pieces = appendPiece(pieces, pos, best.scope)
		pos = best.high
		if next < len(spans) {
			pos = min(pos, spans[next].low)
		}
		for len(open.heap) > 0 && open.best().high <= pos {
			open.pop()
		}
		if len(open.heap) == 0 {
			pieces = appendPiece(pieces, pos, -1)
		}
	}
	r.heap = open.heap
	return pieces
}

// sortSpans returns spans, whose scopes ascend, in the order of their starts, and
// those that start together in the order of their scopes. It uses spans and r.sorted.
func (r *Reader) sortSpans(spans []span) []span {
	low, high := uint64(math.MaxUint64), uint64(0)
	sorted := true
	for i := range spans {
		low, high = min(low, spans[i].low), max(high, spans[i].low)
		sorted = sorted && (i == 0 || spans[i-1].low <= spans[i].low)
	}
	switch {
	case sorted:
		return spans
	case len(spans) < fewSpans:
		insertionSort(spans)
		return spans
	case high-low >= 1<<32:
		slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.low, b.low) })
		return spans
	}
	r.sorted = slices.Grow(r.sorted[:0], len(spans))[:len(spans)]
	from, to := spans, r.sorted
	for shift := 0; (high-low)>>shift != 0; shift += radixBits {
		radixPass(from, to, low, shift)
		from, to = to, from
	}
	return from
}

// fewSpans is how many spans are sorted faster by moving them one by one.
const fewSpans = 40

func insertionSort(spans []span) {
	for i := 1; i < len(spans); i++ {
		s, at := spans[i], i
		for ; at > 0 && spans[at-1].low > s.low; at-- {
			spans[at] = spans[at-1]
		}
		spans[at] = s
	}
}

// radixBits is how many bits of the starts one pass looks at.
const radixBits = 8

// radixPass puts the spans of from into to in the order of some bits of their starts,
// counted from low, and those with equal bits as they were.
func radixPass(from, to []span, low uint64, shift int) {
	var at [1<<radixBits + 1]int
	for i := range from {
		at[(from[i].low-low)>>shift&(1<<radixBits-1)+1]++
	}
	for i := 1; i < len(at); i++ {
		at[i] += at[i-1]
	}
	for i := range from {
		key := (from[i].low - low) >> shift & (1<<radixBits - 1)
		to[at[key]] = from[i]
		at[key]++
	}
}

func appendPiece(pieces []Piece, start uint64, scope int32) []Piece {
	if n := len(pieces); n > 0 {
		last := &pieces[n-1]
		if last.Scope == scope {
			return pieces
		}
		if last.Start == start {
			last.Scope = scope
			return pieces
		}
	}
	return append(pieces, Piece{Start: start, Scope: scope})
}

// spanHeap is spans, of which the one with the highest scope is wanted. As long as
// each one that is pushed is higher than all others, as it is where calls are nested,
// they are a stack. Else it is a heap, until it is empty.
type spanHeap struct {
	spans  []span
	heap   []int32
	heaped bool
}

func (h *spanHeap) scope(i int) int32 { return h.spans[h.heap[i]].scope }

// best returns the span with the highest scope of those that were pushed.
func (h *spanHeap) best() *span {
	if h.heaped {
		return &h.spans[h.heap[0]]
	}
	return &h.spans[h.heap[len(h.heap)-1]]
}

func (h *spanHeap) push(span int32) {
	last := len(h.heap) - 1
	h.heap = append(h.heap, span)
	if !h.heaped {
		if last < 0 || h.scope(last) <= h.scope(last+1) {
			return
		}
		h.heaped = true
		slices.Reverse(h.heap[:last+1]) // what descends is a heap
	}
	for i := last + 1; i > 0; {
		up := (i - 1) / 2
		if h.scope(up) >= h.scope(i) {
			return
		}
		h.heap[up], h.heap[i] = h.heap[i], h.heap[up]
		i = up
	}
}

// pop forgets the best one.
func (h *spanHeap) pop() {
	last := len(h.heap) - 1
	if h.heaped {
		h.heap[0] = h.heap[last]
	}
	if h.heap = h.heap[:last]; last == 0 {
		h.heaped = false
	}
	if !h.heaped {
		return
	}
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return
		}
		if down+1 < last && h.scope(down+1) > h.scope(down) {
			down++
		}
		if h.scope(i) >= h.scope(down) {
			return
		}
		h.heap[i], h.heap[down] = h.heap[down], h.heap[i]
		i = down
	}
}

// noRow stands for the row of code that has none.
var noRow = row{file: noFile}

// merger puts scopes and rows together, in the order of addresses.
type merger struct {
	*Reader
	scope int32 // current one, -1 for none
	next  int   // scope piece to come
}

// run makes the pieces of a unit.
func (m *merger) run() {
	m.scope = -1
	for i, piece := range m.lines {
		if piece.Scope < 0 {
			continue
		}
		m.bare(piece.Start)
		end := m.lines[i+1].Start // the last piece ends the last sequence
		m.sequence(&m.sequences[piece.Scope], piece.Start, end)
	}
	m.bare(math.MaxUint64)
}

// bare makes pieces of scopes without rows, up to end.
func (m *merger) bare(end uint64) {
	for m.next < len(m.scopes) && m.scopes[m.next].Start < end {
		m.take()
		m.emit(m.scopes[m.next-1].Start, &noRow, m.scope >= 0)
	}
}

// take makes the next scope piece the current one.
func (m *merger) take() {
	m.scope = m.scopes[m.next].Scope
	m.next++
}

// sequence makes pieces of the rows of a sequence from start to end.
func (m *merger) sequence(s *sequence, start, end uint64) {
	rows := m.rows[s.first:s.last]
	first, exact := slices.BinarySearchFunc(rows, start, func(r row, start uint64) int { return cmp.Compare(r.addr, start) })
	if !exact {
		first--
	}
	for i := first; i < len(rows) && rows[i].addr < end; i++ {
		stop := end
		if i+1 < len(rows) {
			stop = min(end, rows[i+1].addr)
		}
		at := max(rows[i].addr, start)
		for m.next < len(m.scopes) && m.scopes[m.next].Start <= at {
			m.take()
		}
		m.emit(at, &rows[i], true)
		for m.next < len(m.scopes) && m.scopes[m.next].Start < stop {
			m.take()
			m.emit(m.scopes[m.next-1].Start, &rows[i], true)
		}
	}
	for m.next < len(m.scopes) && m.scopes[m.next].Start <= end {
		m.take()
	}
	m.emit(end, &noRow, m.scope >= 0)
}

// emit starts a piece, unless it says the same as the one before.
func (m *merger) emit(start uint64, r *row, known bool) {
	piece := Piece{start, m.scope, r.file, r.line, r.column, known}
	if n := len(m.Pieces); n > 0 {
		last := &m.Pieces[n-1]
		switch {
		case last.Start == start:
			*last = piece
			return
		case last.Line == r.line && last.Scope == m.scope && last.Column == r.column && last.File == r.file && last.Known == known:
			return
		}
	}
	m.Pieces = append(m.Pieces, piece)
}
