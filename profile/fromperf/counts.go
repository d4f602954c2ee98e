package fromperf

import (
	"encoding/binary"
	"slices"

	"hallmark/profile"
)

// counts counts the stacks that were seen. Its size grows with the number of distinct
// stacks and owners, not with the number of samples.
type counts struct {
	places map[place]uint64 // to a number
	stacks map[string]int   // the numbers of a stack's places, to an index in lists
	lists  [][]place
	index  map[countKey]int // to an index in all
	all    []*counted
	key    []byte
}

type countKey struct {
	stack  int
	walk   profile.Walk
	labels profile.Labels
}

type counted struct {
	stack           []place
	walk            profile.Walk
	labels          profile.Labels
	samples, weight int64
}

func newCounts() *counts {
	return &counts{places: map[place]uint64{}, stacks: map[string]int{}, index: map[countKey]int{}}
}

// add counts a stack, and returns its index in all.
func (c *counts) add(places []place, walk profile.Walk, labels profile.Labels, weight int64) int {
	key := countKey{c.stack(places), walk, labels}
	i, ok := c.index[key]
	if !ok {
		i = len(c.all)
		c.index[key] = i
		c.all = append(c.all, &counted{stack: c.lists[key.stack], walk: walk, labels: labels})
	}
	c.all[i].samples++
	c.all[i].weight += weight
	return i
}

func (c *counts) stack(places []place) int {
	c.key = c.key[:0]
	for _, p := range places {
		n, ok := c.places[p]
		if !ok {
			n = uint64(len(c.places))
			c.places[p] = n
		}
		c.key = binary.AppendUvarint(c.key, n)
	}
	i, ok := c.stacks[string(c.key)]
	if !ok {
		i = len(c.lists)
		c.stacks[string(c.key)] = i
		c.lists = append(c.lists, slices.Clone(places))
	}
	return i
}
