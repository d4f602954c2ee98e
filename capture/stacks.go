package capture

import (
	"encoding/binary"
	"iter"

	"hallmark/profile"
)

// place is one frame of a stack while recording: an object and where in it. What
// the object's identity is may still be on its way.
type place struct {
	object *object
	// at is a file offset for a file, and an absolute address for all else.
	at uint64
}

// stacks counts the stacks that were seen. Its size grows with the number of
// distinct stacks and owners, not with the number of samples, and is bounded.
type stacks struct {
	ids    map[string]uint32 // a stack's places, coded, to its index in coded
	coded  []string
	owners map[profile.Labels]uint32 // to its index in labels
	labels []profile.Labels
	counts map[counted]total
	order  []counted // the keys of counts, in the order of first sight
	most   int       // entries in counts before owners are told apart no more
	latest counted   // what was counted last
	key    []byte
}

// counted is what is counted: a stack of an owner, by their indexes.
type counted struct{ stack, owner uint32 }

type total struct{ samples, nanos int64 }

// maxCounts bounds the memory of a recording: about 300 bytes for each entry of
// a usual depth.
const maxCounts = 1 << 20

func newStacks() *stacks {
	return &stacks{
		ids:    map[string]uint32{},
		owners: map[profile.Labels]uint32{},
		counts: map[counted]total{},
		most:   maxCounts,
	}
}

// add counts samples. When there are too many entries already, what is new is
// counted with coarser labels, and in the end with its innermost frame only; then
// add reports false.
func (s *stacks) add(places []place, labels profile.Labels, n total) (whole bool) {
	if s.count(places, labels, n, s.most) {
		return true
	}
	labels = profile.Labels{Process: labels.Process, Cgroup: labels.Cgroup, Container: labels.Container}
	if !s.count(places, labels, n, 2*s.most) {
		s.count(places[:min(1, len(places))], profile.Labels{}, n, int(^uint(0)>>1))
	}
	return false
}

// count counts samples, unless they are new and there are that many already.
func (s *stacks) count(places []place, labels profile.Labels, n total, most int) bool {
	s.key = s.key[:0]
	for _, p := range places {
		s.key = binary.AppendUvarint(s.key, uint64(p.object.index))
		s.key = binary.AppendUvarint(s.key, p.at)
	}
	if len(s.counts) >= most && !s.has(labels) {
		return false
	}
	key := counted{s.stack(), s.owner(labels)}
	t, ok := s.counts[key]
	if !ok {
		s.order = append(s.order, key)
	}
	t.samples += n.samples
	t.nanos += n.nanos
	s.counts[key] = t
	s.latest = key
	return true
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

// places yields the places of the stack with this index; list has the objects by
// their own.
func (s *stacks) places(stack uint32, list []*object) iter.Seq[place] {
	return func(yield func(place) bool) {
		for code := []byte(s.coded[stack]); len(code) > 0; {
			index, n := binary.Uvarint(code)
			at, m := binary.Uvarint(code[n:])
			if !yield(place{list[index], at}) {
				return
			}
			code = code[n+m:]
		}
	}
}
