package unwind

import (
	"encoding/binary"
	"iter"

	"hallmark/addr"
)

// A Row says that a rule holds for the instructions from Start up to End.
type Row struct {
	Start, End addr.Offset
	Rule       Rule
}

// All returns the rows of a table in the order of the file.
func (t *Table) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		var last Row
		for g := range t.granules {
			first := binary.LittleEndian.Uint32(t.directory[4*g:])
			end := binary.LittleEndian.Uint32(t.directory[4*g+4:])
			for i := first; i < end; i++ {
				start := t.base + addr.Offset(g)*granule + addr.Offset(t.lows[i])
				last.End = start
				if i > 0 && !yield(last) {
					return
				}
				last = Row{Start: start, Rule: t.rule(binary.LittleEndian.Uint16(t.index[2*i:]))}
			}
		}
		if t.rows > 0 {
			last.End = t.base + addr.Offset(t.granules)*granule
			yield(last)
		}
	}
}
