package capture

import (
	"sort"

	"hallmark/addr"
	"hallmark/internal/bpf"
	"hallmark/internal/unwindtables"
	"hallmark/unwind"
)

// copiedSpace is the address space of a sample that is walked on. It is an unwind.Space
// that knows executable memory only.
type copiedSpace struct {
	space  *bpf.Space
	tables *unwindtables.Supply
	// missing is the file whose table was asked for last and was not there, and wait
	// whether it may still come.
	missing uint32
	wait    bool
	// beyond says that an address was looked for that may be in an area that nobody has reported.
	beyond bool
}

// area returns the area that holds an address, or nil.
func (s *copiedSpace) area(a addr.Abs) *bpf.VMA {
	areas := s.space.VMAs
	i := sort.Search(len(areas), func(i int) bool { return areas[i].End > a })
	if i == len(areas) || areas[i].Start > a {
		return nil
	}
	return &areas[i]
}

// isBeyond reports whether an address lies behind all areas that are reported, where there are
// more than that.
func (s *copiedSpace) isBeyond(a addr.Abs) bool {
	areas := s.space.VMAs
	return s.space.Cut && (len(areas) == 0 || a >= areas[len(areas)-1].End)
}

// At returns the mapping that a lies in.
func (s *copiedSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	s.wait = false
	area := s.area(a)
	if area == nil {
		s.beyond = s.isBeyond(a)
		return unwind.Mapping{}, false
	}
	m := unwind.Mapping{Start: area.Start, End: area.End, Offset: addr.Offset(uint64(area.Start) - area.Base), Content: unwind.Unidentified}
	serial := area.Serial
	switch area.Kind {
	case bpf.Generated:
		m.Content = unwind.Generated
		return m, true
	case bpf.InVDSO:
		serial = bpf.VDSOSerial
	case bpf.InFile:
	default:
		return m, true
	}
	m.Content = unwind.File
	m.Table, s.wait = s.tables.Want(serial)
	s.missing = serial
	return m, true
}

// frame returns a frame as the programs would tell it.
func (s *copiedSpace) frame(f unwind.Frame) bpf.Frame {
	area := s.area(f.At) // there is one, or the walk would have ended
	return bpf.Frame{Kind: area.Kind, Serial: area.Serial, Method: f.Method, At: uint64(f.At) - area.Base}
}
