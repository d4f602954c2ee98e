package fromperf

import "hallmark/profile"

// counts counts the stacks that were seen. Its size grows with the number of distinct
// stacks and owners, not with the number of samples.
type counts struct {
	stacks *stacks
	owners *owners
	index  map[uint64]int // of a stack and an owner, to an index in all
	all    []counted
}

// counted is a stack of one owner.
type counted struct {
	stack, owner    uint32
	samples, weight int64
}

func newCounts() *counts {
	return &counts{stacks: newStacks(), owners: newOwners(), index: map[uint64]int{}}
}

// add counts a stack of numbered places, leaf first, and returns its index in all.
func (c *counts) add(places []uint32, walk profile.Walk, labels *profile.Labels, weight int64) int {
	stack, owner := c.stacks.number(places, walk), c.owners.number(labels)
	key := uint64(stack)<<32 | uint64(owner)
	i, ok := c.index[key]
	if !ok {
		i = len(c.all)
		c.index[key] = i
		c.all = append(c.all, counted{stack: stack, owner: owner})
	}
	c.all[i].samples++
	c.all[i].weight += weight
	return i
}

// owners numbers labels.
type owners struct {
	numbers map[profile.Labels]uint32
	all     []profile.Labels
	recent  [256]uint32 // a number and one more, by the thread
}

func newOwners() *owners { return &owners{numbers: map[profile.Labels]uint32{}} }

// number returns the number of these labels. To hash them takes longer than to see that
// they are the thread's last ones.
func (o *owners) number(l *profile.Labels) uint32 {
	recent := &o.recent[uint(l.TID)%uint(len(o.recent))]
	if *recent > 0 && o.all[*recent-1] == *l {
		return *recent - 1
	}
	n, ok := o.numbers[*l]
	if !ok {
		n = uint32(len(o.all))
		o.numbers[*l] = n
		o.all = append(o.all, *l)
	}
	*recent = n + 1
	return n
}
