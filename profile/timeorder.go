package profile

import (
	"cmp"
	"iter"
	"slices"
)

// A TimeOrder is the order in time of lists of times, each of which is mostly in order by
// itself: those of samples (Times). It takes four bytes for each time, and to go through all
// of them again takes no others: there may be millions.
type TimeOrder struct {
	lists [][]int64
	turns []uint32         // the lists, whenever it is their turn
	moved map[int][]uint32 // of a list that is not in order, its indexes as they are
}

// OrderTimes puts the times of all lists in order, which must not change after.
func OrderTimes(lists [][]int64) *TimeOrder {
	o := &TimeOrder{lists: lists, moved: map[int][]uint32{}}
	var waiting heads
	total := 0
	for i, times := range lists {
		total += len(times)
		if !slices.IsSorted(times) {
			o.moved[i] = sortedIndexes(times)
		}
		if len(times) > 0 {
			waiting = append(waiting, head{times[o.index(i, 0)], uint32(i)})
		}
	}
	o.merge(waiting, total)
	return o
}

func sortedIndexes(times []int64) []uint32 {
	indexes := make([]uint32, len(times))
	for i := range indexes {
		indexes[i] = uint32(i)
	}
	slices.SortFunc(indexes, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(times[a], times[b]), cmp.Compare(a, b))
	})
	return indexes
}

// index returns which of a list's times is the n-th one.
func (o *TimeOrder) index(list, n int) int {
	if moved := o.moved[list]; moved != nil {
		return int(moved[n])
	}
	return n
}

// merge finds out whose turn it is each time.
func (o *TimeOrder) merge(waiting heads, total int) {
	waiting.order()
	o.turns = make([]uint32, 0, total)
	next := make([]int, len(o.lists))
	for len(waiting) > 0 {
		list := int(waiting[0].list)
		o.turns = append(o.turns, waiting[0].list)
		next[list]++
		if next[list] < len(o.lists[list]) {
			waiting[0].time = o.lists[list][o.index(list, next[list])]
		} else {
			last := len(waiting) - 1
			waiting[0] = waiting[last]
			waiting = waiting[:last]
		}
		waiting.sink(0)
	}
}

// All yields all times in order: the list that each is in, and its index there. Equal times
// come in the order of the lists, and in one list as they stand.
func (o *TimeOrder) All() iter.Seq2[int, int] {
	return func(yield func(list, index int) bool) {
		next := make([]int, len(o.lists))
		for _, list := range o.turns {
			n := next[list]
			next[list]++
			if !yield(int(list), o.index(int(list), n)) {
				return
			}
		}
	}
}

// Len returns how many times there are.
func (o *TimeOrder) Len() int { return len(o.turns) }

// heads is a heap of lists by their next time.
type heads []head

type head struct {
	time int64
	list uint32
}

func (h heads) before(i, j int) bool {
	return h[i].time < h[j].time || h[i].time == h[j].time && h[i].list < h[j].list
}

func (h heads) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// sink moves one behind those that are before it.
func (h heads) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
