package capture

import (
	"iter"
	"runtime"

	"hallmark/internal/intern"
	"hallmark/internal/objects"
	"hallmark/profile"
	"hallmark/unwind"
)

// place is one frame of a stack while recording: an object and where in it. What
// the object's identity is may still be on its way.
type place struct {
	object *objects.Object
	// at is a file offset for a file, and an absolute address for all else.
	at uint64
}

// framePointers says of a stack with so many user frames that the kernel found them.
func framePointers(user int) profile.Walk {
	switch user {
	case 0:
		return profile.Walk{End: unwind.NoUserStack}
	case 1:
		return profile.Walk{End: unwind.FramePointers, Methods: profile.Methods(0).With(unwind.ByRegs)}
	}
	return profile.Walk{End: unwind.FramePointers, Methods: profile.Methods(0).With(unwind.ByRegs).With(unwind.ByFP)}
}

// garbage returns the place of an address where no code is. The address itself says
// nothing, and would make every stack another one.
func garbage(o *objects.Object) place { return place{object: o} }

// stacks counts the stacks that were seen. Its size grows with the number of
// distinct stacks and owners, not with the number of samples, and is bounded.
type stacks struct {
	places intern.Values[place] // of all stacks
	walks  intern.Sequences     // a stack's walk, then the numbers of its places
	owners intern.Values[profile.Labels]
	counts intern.Values[counted]
	totals []total // of the counts
	most   int     // counts before they are folded
	fixed  bool    // counts are not folded any more
	latest counted // what was counted last
	key    []uint32
}

// counted is what is counted: a stack of an owner, by their numbers.
type counted struct{ stack, owner uint32 }

type total struct{ samples, nanos int64 }

// A recording has room for so many entries, of about 300 bytes each at a usual depth:
// more on large machines, which do more at a time. With a timeline, whose times are those
// of entries, there may be the most in any case.
const (
	minCounts = 1 << 16
	maxCounts = 1 << 20
	cpuCounts = 1 << 14 // for each CPU
)

func newStacks() *stacks {
	return &stacks{most: min(max(minCounts, cpuCounts*runtime.NumCPU()), maxCounts)}
}

// add counts samples, and returns how many lost some detail for it. When there are too
// many entries, those of the processes that were first seen longest ago are distinguished by
// their names only. When that is not enough, because there are too many stacks, what is new
// is counted with such labels too, and in the end with its innermost frame only.
func (s *stacks) add(places []place, walk profile.Walk, labels profile.Labels, n total) (coarse int64) {
	if s.count(places, walk, labels, n, s.most) {
		return 0
	}
	if !s.fixed {
		coarse = s.fold()
		s.fixed = s.counts.Len() > s.most/4*3
		if s.count(places, walk, labels, n, s.most) {
			return coarse
		}
	}
	if !s.count(places, walk, coarsened(labels), n, 2*s.most) {
		s.count(places[:min(1, len(places))], profile.Walk{}, profile.Labels{}, n, int(^uint(0)>>1))
	}
	return coarse + n.samples
}

// addAgain counts samples of the stack with this number, and reports whether it did. Without room for an
// entry it does not, and add has to be called. Once there was no room for a whole stack, there is none
// for an entry any more: so the number of an innermost frame never comes here.
func (s *stacks) addAgain(stack uint32, labels profile.Labels, n total) bool {
	if s.counts.Len() >= s.most {
		return false
	}
	s.sum(counted{stack, s.owner(labels)}, n)
	return true
}

// coarsened returns what a process has in common with all others of its kind.
func coarsened(l profile.Labels) profile.Labels {
	return profile.Labels{Process: l.Process, Cgroup: l.Cgroup, Container: l.Container}
}

// fold adds up the entries of the older half of the owners that have the same coarse
// labels, and returns how many samples lost detail.
func (s *stacks) fold() (coarse int64) {
	owners, counts, totals := s.owners.All(), s.counts.All(), s.totals
	s.owners, s.counts, s.totals = intern.Values[profile.Labels]{}, intern.Values[counted]{}, nil
	numbers := make([]uint32, len(owners))
	for i, l := range owners {
		if i < len(owners)/2 {
			l = coarsened(l)
		}
		numbers[i] = s.owner(l)
	}
	for i, key := range counts {
		owner := numbers[key.owner]
		if s.owners.All()[owner] != owners[key.owner] {
			coarse += totals[i].samples
		}
		s.sum(counted{key.stack, owner}, totals[i])
	}
	return coarse
}

// sum adds to an entry, or makes it.
func (s *stacks) sum(key counted, n total) {
	i, isNew := s.counts.Number(key)
	if isNew {
		s.totals = append(s.totals, total{})
	}
	s.totals[i].samples += n.samples
	s.totals[i].nanos += n.nanos
	s.latest = key
}

// count counts samples, unless they are new and there are that many already.
func (s *stacks) count(places []place, walk profile.Walk, labels profile.Labels, n total, most int) bool {
	if s.counts.Len() >= most && !s.has(places, walk, labels) {
		return false
	}
	s.sum(counted{s.stack(places, walk), s.owner(labels)}, n)
	return true
}

// has reports whether the stack was counted with these labels. It keeps nothing of one that was not.
func (s *stacks) has(places []place, walk profile.Walk, labels profile.Labels) bool {
	s.begin(walk)
	for _, p := range places {
		n, ok := s.places.Find(p)
		if !ok {
			return false
		}
		s.key = append(s.key, n)
	}
	stack, ok := s.walks.Find(s.key)
	if !ok {
		return false
	}
	owner, ok := s.owners.Find(labels)
	if !ok {
		return false
	}
	_, ok = s.counts.Find(counted{stack, owner})
	return ok
}

// stack returns the number of a stack.
func (s *stacks) stack(places []place, walk profile.Walk) uint32 {
	s.begin(walk)
	for _, p := range places {
		n, _ := s.places.Number(p)
		s.key = append(s.key, n)
	}
	return s.walks.Number(s.key)
}

// begin begins a key with a walk.
func (s *stacks) begin(walk profile.Walk) {
	s.key = append(s.key[:0], uint32(walk.End)<<8|uint32(walk.Methods))
}

func (s *stacks) owner(labels profile.Labels) uint32 {
	n, _ := s.owners.Number(labels)
	return n
}

// walk returns how the stack with this number was found.
func (s *stacks) walk(stack uint32) profile.Walk {
	code := s.walks.At(stack)[0]
	return profile.Walk{End: unwind.End(code >> 8), Methods: profile.Methods(code)}
}

// numbers returns the numbers of the places of the stack with this number.
func (s *stacks) numbers(stack uint32) []uint32 { return s.walks.At(stack)[1:] }

// placesOf yields the places of the stack with this number.
func (s *stacks) placesOf(stack uint32) iter.Seq[place] {
	return func(yield func(place) bool) {
		for _, n := range s.numbers(stack) {
			if !yield(s.places.All()[n]) {
				return
			}
		}
	}
}
