package capture

import (
	"slices"

	"hallmark/addr"
)

// mapping is one executable mapping of a process: where, and what of which file.
type mapping struct {
	start, end addr.Abs
	offset     addr.Offset // of start in the file
	object     *object
}

// fileOffset returns the file offset of the byte at a, which lies in m.
func (m *mapping) fileOffset(a addr.Abs) addr.Offset {
	return addr.Offset(a-m.start) + m.offset
}

// space holds the executable mappings of one process, sorted by address and
// without overlap. The zero value is an empty address space.
type space struct {
	mappings []mapping
	copied   *space // as it is now, nil when nobody has asked for it
}

// find returns the mapping that holds a, or nil.
func (s *space) find(a addr.Abs) *mapping {
	i := s.after(a) - 1
	if i < 0 || a >= s.mappings[i].end {
		return nil
	}
	return &s.mappings[i]
}

// after returns the index of the first mapping that starts above a.
func (s *space) after(a addr.Abs) int {
	i, _ := slices.BinarySearchFunc(s.mappings, a, func(m mapping, a addr.Abs) int {
		if m.start <= a {
			return -1
		}
		return 1
	})
	return i
}

// insert adds m, as mmap with MAP_FIXED does: what m overlaps is cut or gone.
func (s *space) insert(m mapping) {
	if m.end <= m.start {
		return
	}
	s.copied = nil
	first := s.after(m.start)
	if first > 0 && s.mappings[first-1].end > m.start {
		first--
	}
	last := first
	for last < len(s.mappings) && s.mappings[last].start < m.end {
		last++
	}
	var replacement []mapping
	if first < last {
		if head := s.mappings[first]; head.start < m.start {
			head.end = m.start
			replacement = append(replacement, head)
		}
	}
	replacement = append(replacement, m)
	if first < last {
		if tail := s.mappings[last-1]; tail.end > m.end {
			tail.offset = tail.fileOffset(m.end)
			tail.start = m.end
			replacement = append(replacement, tail)
		}
	}
	s.mappings = slices.Replace(s.mappings, first, last, replacement...)
}

// clone returns a copy, as fork makes it.
func (s *space) clone() space { return space{mappings: slices.Clone(s.mappings)} }

// snapshot returns a copy for whoever wants the space as it is now, which all who ask
// before it changes share.
func (s *space) snapshot() *space {
	if s.copied == nil {
		c := s.clone()
		s.copied = &c
	}
	return s.copied
}
