package fromperf

import "hallmark/profile"

// counts counts the stacks that were seen. Its size grows with the number of distinct
// stacks and owners, not with the number of samples.
//
// A long recording has no end of processes. When there are enough stacks of owners, further
// owners have only their names: there are fewer of those.
type counts struct {
	stacks *stacks
	owners *owners
	index  map[uint64]int // of a stack and an owner, to an index in all
	all    []counted
	enough int
	bare   int64 // samples that were counted by name only
}

// maxNumbered is how many stacks of owners are counted until owners have only names. Each
// takes some hundred bytes in a profile.
const maxNumbered = 1 << 19

// counted is a stack of one owner.
type counted struct {
	stack, owner    uint32
	samples, weight int64
}

func newCounts() *counts {
	return &counts{stacks: newStacks(), owners: newOwners(), index: map[uint64]int{}, enough: maxNumbered}
}

// add counts a stack of numbered places, leaf first, and returns its index in all.
func (c *counts) add(places []uint32, walk profile.Walk, labels *profile.Labels, weight int64) int {
	i := c.find(c.stacks.number(places, walk), labels)
	c.all[i].samples++
	c.all[i].weight += weight
	return i
}

// find returns the index in all of a stack of an owner.
func (c *counts) find(stack uint32, labels *profile.Labels) int {
	if len(c.all) >= c.enough && labels.PID != 0 {
		if owner, ok := c.owners.known(labels); ok {
			if i, ok := c.index[countKey(stack, owner)]; ok {
				return i
			}
		}
		c.bare++
		named := *labels
		named.PID, named.TID = 0, 0
		labels = &named
	}
	owner := c.owners.number(labels)
	key := countKey(stack, owner)
	i, ok := c.index[key]
	if !ok {
		i = len(c.all)
		c.index[key] = i
		c.all = append(c.all, counted{stack: stack, owner: owner})
	}
	return i
}

func countKey(stack, owner uint32) uint64 { return uint64(stack)<<32 | uint64(owner) }

// owners numbers labels.
type owners struct {
	numbers map[profile.Labels]uint32
	all     []profile.Labels
	recent  [256]uint32 // a number and one more, by the thread
}

func newOwners() *owners { return &owners{numbers: map[profile.Labels]uint32{}} }

// number returns the number of these labels.
func (o *owners) number(l *profile.Labels) uint32 {
	n, ok := o.known(l)
	if !ok {
		n = uint32(len(o.all))
		o.numbers[*l] = n
		o.all = append(o.all, *l)
		*o.recentOf(l) = n + 1
	}
	return n
}

// known returns the number of these labels if they have one. To hash them takes longer than to
// see that they are the thread's last ones.
func (o *owners) known(l *profile.Labels) (uint32, bool) {
	recent := o.recentOf(l)
	if *recent > 0 && o.all[*recent-1] == *l {
		return *recent - 1, true
	}
	n, ok := o.numbers[*l]
	if ok {
		*recent = n + 1
	}
	return n, ok
}

func (o *owners) recentOf(l *profile.Labels) *uint32 {
	return &o.recent[uint(l.TID)%uint(len(o.recent))]
}
