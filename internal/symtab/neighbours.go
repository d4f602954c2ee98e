package symtab

import (
	"slices"

	"hallmark/addr"
	"hallmark/internal/ranges"
)

// neighbours says which spans matter for some addresses: those that hold one,
// and those that decide whether a span without a size does. That is the last one
// to start up to the address, which matters if it has no size, and whatever holds
// its start.
type neighbours struct {
	addresses []uint64 // sorted, each once
	last      []uint64 // where the last span up to each address starts, 0 without any
}

func newNeighbours(addresses []addr.Virt) *neighbours {
	distinct := ranges.Distinct(addresses)
	return &neighbours{addresses: distinct, last: make([]uint64, len(distinct))}
}

// from returns the number of the first address from v on.
func (n *neighbours) from(v uint64) int {
	if len(n.addresses) == 1 { // as is common
		if v > n.addresses[0] {
			return 1
		}
		return 0
	}
	i, _ := slices.BinarySearch(n.addresses, v)
	return i
}

// isOffer reports whether an offer of the span would change anything.
func (n *neighbours) isOffer(start, _ uint64, _ bool) bool {
	i := n.from(start)
	return i < len(n.last) && n.last[i] < start
}

// offer takes each span in turn, in any order.
func (n *neighbours) offer(s ranges.Span) {
	if i := n.from(s.Start); i < len(n.last) {
		n.last[i] = max(n.last[i], s.Start)
	}
}

// settle ends the offers: what is the last one up to an address is so for the next
// address too, unless there is one in between.
func (n *neighbours) settle() {
	for i := 1; i < len(n.last); i++ {
		n.last[i] = max(n.last[i], n.last[i-1])
	}
}

// matters reports whether a span matters for any address. It is enough to look at
// the first one from its start on: for those above, the last start is no lower.
func (n *neighbours) matters(start, end uint64, unsized bool) bool {
	i := n.from(start)
	switch {
	case i == len(n.addresses):
		return false
	case unsized:
		return start == n.last[i]
	}
	return end > n.last[i]
}
