package symbol

import (
	"slices"

	"hallmark/addr"
	"hallmark/reason"
)

// A Mapping is a part of a file with code that is in memory as a whole: as the program headers of the
// file have it, or as whoever recorded a process saw it.
type Mapping struct {
	Start  addr.Virt   // virtual address of the file, if the headers have it
	Size   uint64      // in bytes, of whole pages
	Offset addr.Offset // in the file, of the byte at Start
}

// Places finds the offsets of a program in its debug file alone. That has the program's addresses, and
// mostly not its offsets: tools that split files give new ones to segments without bytes.
type Places struct {
	segments []Segment // with code
	mapped   []Mapping
	differs  bool // a mapping is where the debug file has other offsets
}

// maxMapped is more than the segments with code that a program has.
const maxMapped = 64

// NewPlaces returns the Places of a debug file that has these segments, for a program of which these
// mappings were recorded. A mapping counts if a segment with code has all of it, and has the same
// difference of address and offset, as far as the debug file kept the offset.
func NewPlaces(segments []Segment, mapped []Mapping) *Places {
	p := new(Places)
	for _, s := range segments {
		if s.Executable() && s.MemSize > 0 {
			p.segments = append(p.segments, s)
		}
	}
	for _, m := range mapped {
		s := p.segmentOf(m)
		switch {
		case s == nil || slices.Contains(p.mapped, m):
		case s.FileSize > 0 && uint64(s.Virt)-uint64(s.Offset) != uint64(m.Start)-uint64(m.Offset):
			p.differs = true
		default:
			p.mapped = append(p.mapped, m)
		}
		if len(p.mapped) > maxMapped {
			p.mapped = nil // no program has so many
			break
		}
	}
	return p
}

// segmentOf returns the segment that has all of a mapping, or nil.
func (p *Places) segmentOf(m Mapping) *Segment {
	const page = 4096
	for i := range p.segments {
		s := &p.segments[i]
		start := uint64(s.Virt) &^ (page - 1)
		size := s.MemSize + uint64(s.Virt) - start
		at := uint64(m.Start) - start
		if size >= s.MemSize && m.Size > 0 && uint64(m.Start) >= start && at < size && m.Size-1 <= (size-1-at)|(page-1) {
			return s
		}
	}
	return nil
}

// Known reports whether some offset has a place.
func (p *Places) Known() bool {
	return !p.differs && (len(p.mapped) > 0 || slices.ContainsFunc(p.segments, func(s Segment) bool { return s.FileSize >= s.MemSize }))
}

// Virt returns the virtual address of the byte of the program at a file offset: by the segments of the
// debug file that kept their offsets, else by the mappings, if these agree.
func (p *Places) Virt(o addr.Offset) (v addr.Virt, known bool) {
	if p.differs {
		return 0, false
	}
	for _, s := range p.segments {
		if s.Holds(o) {
			return s.Virt + addr.Virt(o-s.Offset), true
		}
	}
	for _, m := range p.mapped {
		if o < m.Offset || uint64(o-m.Offset) >= m.Size {
			continue
		}
		at := m.Start + addr.Virt(o-m.Offset)
		if known && at != v {
			return 0, false
		}
		v, known = at, true
	}
	return v, known
}

// Lookup returns one Result for each of the offsets, as lookup answers for their virtual addresses.
func (p *Places) Lookup(offsets []addr.Offset, lookup func([]addr.Virt) []Result) []Result {
	results := make([]Result, len(offsets))
	var virts []addr.Virt
	var asked []int
	for i, o := range offsets {
		if v, ok := p.Virt(o); ok {
			virts, asked = append(virts, v), append(asked, i)
		} else {
			results[i] = Miss(reason.DebugFileAlone)
		}
	}
	if len(virts) > 0 {
		for i, r := range lookup(virts) {
			results[asked[i]] = r
		}
	}
	return results
}
