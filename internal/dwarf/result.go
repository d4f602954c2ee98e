package dwarf

import (
	"cmp"
	"math"
	"slices"
)

// At returns the piece that v is in, or nil where there is none.
func (r *Result) At(v uint64) *Piece {
	i, exact := slices.BinarySearchFunc(r.Pieces, v, func(p Piece, v uint64) int { return cmp.Compare(p.Start, v) })
	if !exact {
		i--
	}
	if i < 0 {
		return nil
	}
	return &r.Pieces[i]
}

// AppendKnown appends the addresses that something is known of to ranges, in order and
// disjoint.
func (r *Result) AppendKnown(ranges []Range) []Range {
	before := false // the piece before is known
	for i := range r.Pieces {
		p := &r.Pieces[i]
		known := p.Scope >= 0 || p.Known
		if before {
			ranges[len(ranges)-1].High = p.Start
		}
		if known && !before {
			ranges = append(ranges, Range{p.Start, math.MaxUint64})
		}
		before = known
	}
	return ranges
}

// Clone returns a copy of r that stays valid when the Reader goes on. It has strings
// of the Data's sections, as r has.
func (r *Result) Clone() *Result {
	files := *r.Files
	files.dirs, files.files = slices.Clone(files.dirs), slices.Clone(files.files)
	return &Result{
		Scopes: slices.Clone(r.Scopes), Funcs: slices.Clone(r.Funcs), Pieces: slices.Clone(r.Pieces),
		Files: &files, Lang: r.Lang, Partial: r.Partial,
	}
}
