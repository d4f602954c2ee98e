package symbol

import (
	"slices"

	"hallmark/addr"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
)

// nearest finds the symbols of the kernel that some addresses belong to, in one
// pass over all symbols in any order. Between two of the addresses only the last
// symbol counts: it is the nearest one for the upper address, and for all above
// it as long as no other is nearer.
type nearest struct {
	addresses []uint64 // sorted, each once
	found     []candidate
	at        int // where the last symbol was, since most come sorted
}

// candidate is the last symbol up to an address and above the one before, as far
// as they were seen. Its start is 0 where there was none.
type candidate struct {
	start        uint64
	rank         uint8
	name, module []byte // its own copies
}

func newNearest(addresses []addr.Abs) *nearest {
	n := new(nearest)
	for _, a := range addresses {
		n.addresses = append(n.addresses, uint64(a))
	}
	slices.Sort(n.addresses)
	n.addresses = slices.Compact(n.addresses)
	n.found = make([]candidate, len(n.addresses))
	return n
}

// offer takes the next symbol.
func (n *nearest) offer(l kallsymsLine) {
	if !n.isAt(n.at, l.start) {
		n.at, _ = slices.BinarySearch(n.addresses, l.start)
	}
	if n.at == len(n.addresses) {
		return // above all addresses
	}
	c := &n.found[n.at]
	if l.start < c.start || l.start == c.start && !l.betterThan(c) {
		return
	}
	c.start, c.rank = l.start, l.rank
	c.name, c.module = append(c.name[:0], l.name...), append(c.module[:0], l.module...)
}

// isAt reports whether address i is the first one from v on.
func (n *nearest) isAt(i int, v uint64) bool {
	return (i == 0 || n.addresses[i-1] < v) && (i == len(n.addresses) || v <= n.addresses[i])
}

// betterThan is the order of Kallsyms.prefer.
func (l *kallsymsLine) betterThan(c *candidate) bool {
	if l.rank != c.rank || l.rank == ranges.Hidden {
		return l.rank < c.rank
	}
	return symtab.CompareNames(string(l.name), string(c.name)) < 0
}

// spans returns what was found, and has b keep the names.
func (n *nearest) spans(b *kallsymsBuilder) []ranges.Span {
	var spans []ranges.Span
	for _, c := range n.found {
		if c.start != 0 {
			spans = append(spans, b.span(kallsymsLine(c)))
		}
	}
	return spans
}
