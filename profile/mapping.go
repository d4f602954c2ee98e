package profile

import (
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// PseudoFile returns the Mapping.File of the frames that have no identity
// because of r: its code in brackets, and behind it the path of the file that
// they are from, if they are from one: "[not-mapped]", "[file-gone] /bin/x". Such
// a mapping has no BuildID.
func PseudoFile(r reason.Reason, path string) string {
	file := "[" + r.Code() + "]"
	if path != "" {
		file += " " + path
	}
	return file
}

// ReasonOf returns why the frames in m have no identity, and reason.None when
// they have one. A mapping that has no reason itself, such as one in a profile
// that another program wrote, gives reason.NotRecorded; so does a nil m.
func ReasonOf(m *pprof.Mapping) reason.Reason {
	if m == nil {
		return reason.NotRecorded
	}
	if m.BuildID != "" {
		return reason.None
	}
	if r, _, ok := pseudo(m.File); ok {
		return r
	}
	return reason.NotRecorded
}

// pseudo takes apart what PseudoFile put together.
func pseudo(file string) (r reason.Reason, path string, ok bool) {
	code, path, ok := strings.Cut(file, "]")
	if !ok || !strings.HasPrefix(code, "[") {
		return reason.None, "", false
	}
	r, ok = reason.Parse(code[1:])
	return r, strings.TrimPrefix(path, " "), ok && r != reason.None
}

// Identity returns the identity of the file that m maps. It is false when the
// profile records none, or text that is no build ID.
func Identity(m *pprof.Mapping) (buildid.ID, bool) {
	if m == nil || m.BuildID == "" {
		return buildid.ID{}, false
	}
	id, err := buildid.Parse(m.BuildID)
	return id, err == nil
}

// segmentOf returns the part of a file that m maps. Its addresses are those of the file where a Builder
// has made m, and of a process otherwise.
func segmentOf(m *pprof.Mapping) Segment {
	return Segment{Offset: addr.Offset(m.Offset), Virt: addr.Virt(m.Start), Size: max(m.Limit, m.Start) - m.Start}
}

// Mapped returns the Segments of a Binary as those who have its debug file alone need them.
func Mapped(b *Binary) []symbol.Mapping {
	all := make([]symbol.Mapping, len(b.Segments))
	for i, s := range b.Segments {
		all[i] = symbol.Mapping{Start: s.Virt, Size: s.Size, Offset: s.Offset}
	}
	return all
}

// FileOffset returns the file offset of the instruction at l. It holds for
// mappings recorded at the absolute addresses of a process as well as for those
// recorded at the virtual addresses of their segment, as a Builder does. Without
// a mapping there is no file, and the offset is l.Address.
func FileOffset(l *pprof.Location) addr.Offset {
	if l.Mapping == nil {
		return addr.Offset(l.Address)
	}
	return addr.Offset(l.Address - l.Mapping.Start + l.Mapping.Offset)
}
