package fromperf

import (
	"slices"

	"hallmark/addr"
)

// mapping is one mapping of a process: where, and what of which file.
type mapping struct {
	start, end addr.Abs
	offset     addr.Offset // of start in the file
	file       *file       // nil for memory
	executable bool
}

// fileOffset returns the file offset of the byte at a, which lies in m.
func (m *mapping) fileOffset(a addr.Abs) addr.Offset { return addr.Offset(a-m.start) + m.offset }

// space holds the mappings of one process, sorted by address and without overlap.
// Processes that fork share them until one of them changes.
type space struct {
	mappings []mapping
	shared   bool
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
	if s.shared {
		s.mappings, s.shared = slices.Clone(s.mappings), false
	}
	first := s.after(m.start)
	if first > 0 && s.mappings[first-1].end > m.start {
		first--
	}
	last := first
	for last < len(s.mappings) && s.mappings[last].start < m.end {
		last++
	}
	parts := make([]mapping, 0, 3)
	if first < last && s.mappings[first].start < m.start {
		head := s.mappings[first]
		head.end = m.start
		parts = append(parts, head)
	}
	parts = append(parts, m)
	if first < last && s.mappings[last-1].end > m.end {
		tail := s.mappings[last-1]
		tail.offset, tail.start = tail.fileOffset(m.end), m.end
		parts = append(parts, tail)
	}
	s.mappings = slices.Replace(s.mappings, first, last, parts...)
}

// clone returns a copy, as fork makes it.
func (s *space) clone() space {
	s.shared = true
	return *s
}
