package unwind

import (
	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
	"hallmark/internal/pclntab"
)

type off = addr.Offset

// pclntab returns the file's pclntab, nil if it has none. Not to understand it is an error.
func (f *elfFile) pclntab() (*pclntab.Table, error) {
	s, mixed := f.PclntabSection()
	if s == nil {
		return nil, nil
	}
	if s.Size > maxSection {
		return nil, &cursor.Error{Offset: int64(s.Offset), Msg: "table of implausible size"}
	}
	data, err := f.ReadString(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if mixed {
		places = pclntab.Headers(data, false)
	}
	for _, at := range places {
		t, ok := pclntab.Parse(data[at:], false)
		if !ok || t.Ptr != 8 {
			continue
		}
		if t.IsRelative() {
			md, err := t.Locate(s.Addr+at, elffile.Loaded{Image: f.Image})
			if err != nil {
				return nil, err
			}
			if md == nil {
				continue
			}
		}
		if t.IsSound(f.isCode) {
			return &t, nil
		}
	}
	return nil, &cursor.Error{Offset: int64(s.Offset), Msg: "no pclntab that describes the code of its file"}
}

// isCode reports whether all addresses from start up to end are in one executable
// segment.
func (f *elfFile) isCode(start, end uint64) bool {
	from, to, ok := f.code(start, end)
	return ok && uint64(to-from) == end-start
}
