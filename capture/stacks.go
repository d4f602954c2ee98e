package capture

import (
	"encoding/binary"

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
// distinct stacks, not with the number of samples.
type stacks struct {
	counts map[string]*stackCount
	seen   []*stackCount // in the order of first sight
	key    []byte
}

type stackCount struct {
	places []place
	labels *profile.Labels
	count  int64
	nanos  int64
}

func newStacks() *stacks { return &stacks{counts: map[string]*stackCount{}} }

// add counts one sample. places is copied when the stack is new; labels are
// compared by value.
func (s *stacks) add(places []place, labels profile.Labels, nanos int64) {
	s.key = s.key[:0]
	for _, p := range places {
		s.key = binary.AppendUvarint(s.key, uint64(p.object.index))
		s.key = binary.AppendUvarint(s.key, p.at)
	}
	s.key = binary.AppendUvarint(s.key, uint64(labels.TID))
	s.key = binary.AppendUvarint(s.key, uint64(labels.PID))
	for _, name := range []string{labels.Process, labels.Thread, labels.Cgroup} {
		s.key = append(append(s.key, name...), 0)
	}
	c := s.counts[string(s.key)]
	if c == nil {
		c = &stackCount{places: append([]place(nil), places...), labels: &labels}
		s.counts[string(s.key)] = c
		s.seen = append(s.seen, c)
	}
	c.count++
	c.nanos += nanos
}
