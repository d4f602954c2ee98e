package unwind

// Stats say what a table has.
type Stats struct {
	Rows, Rules int
	Size        int    // bytes of the table
	Known       uint64 // bytes of code that have a rule

	// Silent are the rows that say nothing, by their reason, and SilentBytes how much code
	// they are. What lies before the first row and behind the last is not counted.
	Silent      [4]int
	SilentBytes [4]uint64

	// Lost are the rows whose callers' frame pointers cannot be found.
	Lost int
}

// Stats counts what is in a table.
func (t *Table) Stats() Stats {
	s := Stats{Rows: t.Rows(), Rules: t.Rules(), Size: len(t.raw)}
	for row := range t.All() {
		n := uint64(row.End - row.Start)
		switch r := &row.Rule; {
		case r.Kind == None:
			s.Silent[r.Why()&3]++
			s.SilentBytes[r.Why()&3] += n
		default:
			s.Known += n
			if places := r.Kind == Reg || r.Kind == Deref; places && r.Saved[t.Machine().framePointer()] == Unknown {
				s.Lost++
			}
		}
	}
	return s
}
