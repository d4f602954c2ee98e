package toperf

import (
	"cmp"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/profile"
)

// mapCode places generated code of processes. Code that has one name and lies together, in one
// page or two, is an area: none may be where another is that the same process has, or a
// file, because what is mapped later would take its place.
func (l *layout) mapCode() {
	slices.SortStableFunc(l.code, func(a, b *pprof.Location) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), strings.Compare(codeName(a), codeName(b)))
	})
	var last *area
	for _, at := range l.code {
		name := codeName(at)
		if last == nil || last.record.Name != name || at.Address > uint64(last.record.Start)+last.record.Size+page-2 {
			last = &area{record: perfdata.Mmap2{
				Type: perfdata.TypeMmap2, Start: addr.Abs(at.Address), Prot: protRead | protWrite | protExec, Flags: mapPrivate, Name: name,
			}}
			if name != anonymous { // its addresses are offsets as well
				last.record.Offset = addr.Offset(at.Address)
			}
		}
		// A caller is at the last byte of its call, and recorded at the next one.
		l.take(at.Address + 1)
		last.record.Size = at.Address + 2 - uint64(last.record.Start)
		l.places[at] = place{ip: at.Address, area: last}
	}
}

// codeName returns the name of the mapping that shows generated code.
func codeName(at *pprof.Location) string {
	for c := range profile.CallsAt(at) {
		if c.Function != nil {
			return record(strings.Map(printable, perfdata.GeneratedName(c.Name())))
		}
		break
	}
	return anonymous
}
