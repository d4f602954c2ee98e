package capture

import (
	"encoding/binary"
	"iter"
	"runtime"

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
	ids    map[string]uint32 // a stack's walk and places, coded, to its index in coded
	coded  []string
	owners map[profile.Labels]uint32 // to its index in labels
	labels []profile.Labels
	counts map[counted]total
	order  []counted // the keys of counts, in the order of first sight
	most   int       // entries in counts before they are folded
	fixed  bool      // entries are not folded any more
	latest counted   // what was counted last
	key    []byte
}

// counted is what is counted: a stack of an owner, by their indexes.
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
	return &stacks{
		ids:    map[string]uint32{},
		owners: map[profile.Labels]uint32{},
		counts: map[counted]total{},
		most:   min(max(minCounts, cpuCounts*runtime.NumCPU()), maxCounts),
	}
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
		s.fixed = len(s.counts) > s.most/4*3
		if s.count(places, walk, labels, n, s.most) {
			return coarse
		}
	}
	if !s.count(places, walk, coarsened(labels), n, 2*s.most) {
		s.count(places[:min(1, len(places))], profile.Walk{}, profile.Labels{}, n, int(^uint(0)>>1))
	}
	return coarse + n.samples
}

// addAgain counts samples of the stack with this index, and reports whether it did. Without room for an
// entry it does not, and add has to be called. Once there was no room for a whole stack, there is none
// for an entry any more: so the index of an innermost frame never comes here.
func (s *stacks) addAgain(stack uint32, labels profile.Labels, n total) bool {
	if len(s.counts) >= s.most {
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
	labels, counts, order := s.labels, s.counts, s.order
	s.labels, s.owners, s.counts, s.order = nil, map[profile.Labels]uint32{}, map[counted]total{}, nil
	numbers := make([]uint32, len(labels))
	for i, l := range labels {
		if i < len(labels)/2 {
			l = coarsened(l)
		}
		numbers[i] = s.owner(l)
	}
	for _, key := range order {
		owner := numbers[key.owner]
		if s.labels[owner] != labels[key.owner] {
			coarse += counts[key].samples
		}
		s.sum(counted{key.stack, owner}, counts[key])
	}
	return coarse
}

// sum adds to an entry, or makes it.
func (s *stacks) sum(key counted, n total) {
	t, ok := s.counts[key]
	if !ok {
		s.order = append(s.order, key)
	}
	s.counts[key] = total{t.samples + n.samples, t.nanos + n.nanos}
	s.latest = key
}

// count counts samples, unless they are new and there are that many already.
func (s *stacks) count(places []place, walk profile.Walk, labels profile.Labels, n total, most int) bool {
	s.encode(places, walk)
	if len(s.counts) >= most && !s.has(labels) {
		return false
	}
	s.sum(counted{s.stack(), s.owner(labels)}, n)
	return true
}

// encode writes a stack into s.key.
func (s *stacks) encode(places []place, walk profile.Walk) {
	s.key = append(s.key[:0], byte(walk.End), byte(walk.Methods))
	for _, p := range places {
		s.key = binary.AppendUvarint(s.key, uint64(p.object.Index))
		s.key = binary.AppendUvarint(s.key, p.at)
	}
}

// intern returns the index of a stack.
func (s *stacks) intern(places []place, walk profile.Walk) uint32 {
	s.encode(places, walk)
	return s.stack()
}

// has reports whether the stack in s.key was seen with these labels.
func (s *stacks) has(labels profile.Labels) bool {
	stack, ok := s.ids[string(s.key)]
	if !ok {
		return false
	}
	owner, ok := s.owners[labels]
	if !ok {
		return false
	}
	_, ok = s.counts[counted{stack, owner}]
	return ok
}

// stack returns the index of the stack in s.key.
func (s *stacks) stack() uint32 {
	id, ok := s.ids[string(s.key)]
	if !ok {
		id = uint32(len(s.coded))
		code := string(s.key)
		s.ids[code] = id
		s.coded = append(s.coded, code)
	}
	return id
}

func (s *stacks) owner(labels profile.Labels) uint32 {
	id, ok := s.owners[labels]
	if !ok {
		id = uint32(len(s.labels))
		s.owners[labels] = id
		s.labels = append(s.labels, labels)
	}
	return id
}

// walkSize is how many bytes of a coded stack are its walk.
const walkSize = 2

// walk returns how the stack with this index was found.
func (s *stacks) walk(stack uint32) profile.Walk {
	code := s.coded[stack]
	return profile.Walk{End: unwind.End(code[0]), Methods: profile.Methods(code[1])}
}

// places yields the places of the stack with this index; list has the objects by
// their own.
func (s *stacks) places(stack uint32, list []*objects.Object) iter.Seq[place] {
	return func(yield func(place) bool) {
		for code := []byte(s.coded[stack][walkSize:]); len(code) > 0; {
			index, n := binary.Uvarint(code)
			at, m := binary.Uvarint(code[n:])
			if !yield(place{list[index], at}) {
				return
			}
			code = code[n+m:]
		}
	}
}
