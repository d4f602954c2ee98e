package unwind

import (
	"cmp"
	"slices"

	"hallmark/addr"
)

// A layer is what one kind of evidence says of a file: functions, and which rule holds
// from where in them. Of several layers the first that covers a place has the word.
//
// Functions may come in any order. Where two overlap, the one that begins first has the
// word up to its end, and of two that begin together the one that came first. Within a
// function, rows come in the order of their offsets.
type layer struct {
	base   addr.Offset // offsets in spans and rows count from here
	source Source
	parts  []*part
	limits limits
}

// A part is a piece of a layer that one goroutine makes.
type part struct {
	layer *layer
	rules *rules
	spans []span
	rows  []row
}

// span is a function.
type span struct {
	start, end uint32 // from the layer's base
	first, n   uint32 // its rows in the part
	part       uint32
}

// row says from where on a rule holds.
type row struct {
	at   uint32 // from the layer's base
	rule uint32 // number in the part's rules; in a builder's after numbering
}

// maxSpread is how far code may lie apart in one file, in bytes: no code model but the
// large one, which nobody uses for files of their own, can call farther.
const maxSpread = 1 << 31

// add says that one rule holds from start up to end. Rule's source is set.
func (p *part) add(start, end addr.Offset, r Rule) {
	if p.begin(start, end) {
		p.row(start, r)
	}
}

// begin starts a function that goes from start up to end, and reports whether it lies
// where the table's code may lie; if not, it can have no rows. Without rows it is none.
func (p *part) begin(start, end addr.Offset) bool {
	base := p.layer.base
	if start < base || end <= start || end-base > maxSpread {
		return false
	}
	if n := len(p.spans); n > 0 && p.spans[n-1].n == 0 {
		p.spans = p.spans[:n-1]
	}
	if len(p.spans) > p.layer.limits.functions {
		return false // there will be no table
	}
	p.spans = append(p.spans, span{start: uint32(start - base), end: uint32(end - base), first: uint32(len(p.rows))})
	return true
}

// row says that a rule holds from an offset on, in the function that begin started last:
// up to the next row, or the end of the function.
func (p *part) row(at addr.Offset, r Rule) {
	if at < p.layer.base || at-p.layer.base > maxSpread {
		return
	}
	r.Flags = r.Flags&ruleFlags | uint8(p.layer.source)<<sourceShift
	p.put(uint32(at-p.layer.base), p.rules.number(r.pack()))
}

// put is row, with a place from the layer's base on and a rule's number.
func (p *part) put(at, rule uint32) {
	s := &p.spans[len(p.spans)-1]
	if at >= s.end {
		return
	}
	if s.n > 0 {
		last := &p.rows[len(p.rows)-1]
		switch {
		case last.rule == rule:
			return
		case last.at >= at: // nothing holds over no bytes
			last.rule = rule
			return
		}
	}
	if len(p.rows) > p.layer.limits.rows {
		return // there will be no table
	}
	p.rows = append(p.rows, row{at, rule})
	s.n++
}

// ordered returns all functions of a layer in the order of the file.
func (l *layer) ordered() []span {
	n := 0
	for _, p := range l.parts {
		n += len(p.spans)
	}
	all := make([]span, 0, n)
	for i, p := range l.parts {
		for _, s := range p.spans {
			if s.part = uint32(i); s.n > 0 {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.first, b.first))
	})
	return all
}
