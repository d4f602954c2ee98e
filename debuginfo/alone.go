package debuginfo

import (
	"context"

	"hallmark/addr"
	"hallmark/symbol"
)

// alone are the symbols of a debug file without its program, for a query that has mappings.
type alone struct {
	virtSymbols
	places *symbol.Places
}

// virtSymbols are those of a debug file.
type virtSymbols interface {
	Symbols
	HasCode() bool
	Segments() []symbol.Segment
	LookupVirts([]addr.Virt) []symbol.Result
}

// place returns s, or if it is of a debug file alone, what finds offsets by the mappings of a
// query. The code of the program was compared with nothing then: Uncompared is called.
func (l *Library) place(s Symbols, q *Query) Symbols {
	file, ok := s.(virtSymbols)
	if len(q.Mapped) == 0 || q.ofKernel() || !ok || file.HasCode() {
		return s
	}
	a := &alone{file, symbol.NewPlaces(file.Segments(), q.Mapped)}
	if a.places.Known() && l.Finder.Uncompared != nil {
		l.Finder.Uncompared(q.ID, nameOf(s))
	}
	return a
}

// nameOf returns the path of a file, or of that which an index was made of.
func nameOf(s Symbols) string {
	switch s := s.(type) {
	case *symbol.File:
		return s.Name()
	case *symbol.Index:
		return OriginOf(s).Path
	}
	return ""
}

// Virt returns the virtual address of the byte of the program at a file offset.
func (a *alone) Virt(o addr.Offset) (addr.Virt, bool) { return a.places.Virt(o) }

// LookupOffset answers for the instruction at a file offset of the program.
func (a *alone) LookupOffset(o addr.Offset) symbol.Result {
	return a.LookupOffsets([]addr.Offset{o})[0]
}

// LookupOffsets answers as LookupOffset does for each of the offsets.
func (a *alone) LookupOffsets(offsets []addr.Offset) []symbol.Result {
	return a.places.Lookup(offsets, a.LookupVirts)
}

// EndWith has a context end the reading of the debug file, as of a [symbol.File].
func (a *alone) EndWith(ctx context.Context) {
	if file, ok := a.virtSymbols.(*symbol.File); ok {
		file.EndWith(ctx)
	}
}
