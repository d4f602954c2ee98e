package symbol

import (
	"encoding/binary"
	"math"
	"sort"

	"hallmark/addr"
)

// startsInGroup is how many starts one entry of the directory of starts is for.
const startsInGroup = 64

const (
	startGroup    = 8                                         // the size of an entry of the directory of starts
	maxStartGroup = startsInGroup * 2 * binary.MaxVarintLen64 // bytes of a group at most
)

// unnamedStarts finds, of the code that the call frame information describes, what has
// an address without a name, as the pieces of the code are added.
type unnamedStarts struct {
	tables    *tables
	bare      *indexPart
	described []extent // from the base, in order and disjoint; those that are still ahead
	kept      []extent

	unnamed bool   // the last piece has no name
	since   uint64 // where it starts
}

// fromBase returns the described ranges as offsets from base, each cut off where the next
// one starts: an address belongs to the last one that starts up to it.
func fromBase(described []extent, base, end uint64) []extent {
	var ranges []extent
	for i, e := range described {
		if e.start < base || e.start-base >= end {
			continue
		}
		if i+1 < len(described) {
			e.size = min(e.size, described[i+1].start-e.start)
		}
		ranges = append(ranges, extent{e.start - base, min(e.size, math.MaxUint32)})
	}
	return ranges
}

// add takes the next piece of the code.
func (s *unnamedStarts) add(p codePiece) {
	s.until(uint64(p.start))
	s.unnamed, s.since = s.isUnnamed(&p), uint64(p.start)
}

func (s *unnamedStarts) isUnnamed(p *codePiece) bool {
	return p.site < 0 || p.part == s.bare && s.tables.strings.strings[p.part.functionOf(p.site).name] == ""
}

// until keeps what is described of the last piece, which ends at end.
func (s *unnamedStarts) until(end uint64) {
	for s.unnamed && len(s.described) > 0 && s.described[0].start < end {
		if e := s.described[0]; e.start+e.size > s.since {
			s.kept = append(s.kept, e)
		}
		s.described = s.described[1:]
	}
}

// encodeStarts returns the part starts.
func encodeStarts(ranges []extent) []byte {
	if len(ranges) == 0 {
		return nil
	}
	groups := (len(ranges) + startsInGroup - 1) / startsInGroup
	b := binary.LittleEndian.AppendUint32(nil, uint32(groups))
	b = append(b, make([]byte, groups*startGroup)...)
	for i, e := range ranges {
		if i%startsInGroup == 0 {
			group := b[4+i/startsInGroup*startGroup:]
			binary.LittleEndian.PutUint32(group, uint32(e.start))
			binary.LittleEndian.PutUint32(group[4:], uint32(len(b)))
		} else {
			before := ranges[i-1]
			b = binary.AppendUvarint(b, e.start-before.start-before.size)
		}
		b = binary.AppendUvarint(b, e.size)
	}
	return b
}

// Starts returns for each of the offsets where the function starts that holds it, as
// File.Starts of the file that the index was made from does. It does so for offsets that
// no function and no symbol names; for others it may return NoStart, as it does where the index is damaged.
func (x *Index) Starts(offsets []addr.Offset) []addr.Offset {
	return startsBy(offsets, x.segments, x.startAt)
}

// startAt returns where the code starts that is described and holds a virtual address.
func (x *Index) startAt(v uint64) (uint64, bool) {
	start, ok := x.findStart(v)
	return start, ok && x.Damage() == nil
}

func (x *Index) findStart(v uint64) (uint64, bool) {
	b, off := x.parts[partStarts], v-x.base
	if len(b) < 4 || off > math.MaxUint32 || !x.hasWhole(partStarts, 0, 4) {
		return 0, false
	}
	groups := min(int(binary.LittleEndian.Uint32(b)), (len(b)-4)/startGroup)
	first := func(i int) uint64 {
		x.hasWhole(partStarts, uint64(4+i*startGroup), startGroup)
		return uint64(binary.LittleEndian.Uint32(b[4+i*startGroup:]))
	}
	i := sort.Search(groups, func(i int) bool { return first(i) > off }) - 1
	if i < 0 {
		return 0, false
	}
	start := first(i)
	group := min(uint64(binary.LittleEndian.Uint32(b[8+i*startGroup:])), uint64(len(b)))
	b = b[group:]
	if !x.hasWhole(partStarts, group, maxStartGroup) {
		return 0, false
	}
	for range startsInGroup {
		size, n := binary.Uvarint(b)
		if n <= 0 || off < start {
			break
		}
		if off-start < size {
			return x.base + start, true
		}
		gap, m := binary.Uvarint(b[n:])
		if m <= 0 || size > math.MaxUint32 || gap > math.MaxUint32 {
			break
		}
		start += size + gap
		b = b[n+m:]
	}
	return 0, false
}
