package compact

import (
	"strconv"
)

// Label is a label of samples: a text or a number.
type Label struct {
	Key    string
	Text   string // "" of a number
	Number int64
	Unit   string // of a number, "" for none
	IsText bool
}

// Value returns the label's text, or its number as decimal text.
func (l *Label) Value() string {
	if l.IsText {
		return l.Text
	}
	return strconv.FormatInt(l.Number, 10)
}

// labelSets are the sets of labels, each once.
type labelSets struct {
	labels []Label
	start  []uint32
}

func (s *labelSets) add(labels []Label) {
	s.start = append(s.start, uint32(len(s.labels)))
	s.labels = append(s.labels, labels...)
}

func (s *labelSets) at(n uint32) []Label {
	end := len(s.labels)
	if int(n)+1 < len(s.start) {
		end = int(s.start[n+1])
	}
	return s.labels[s.start[n]:end]
}

// numbers are the labels that are measurements, with a unit: times and sizes. They differ from
// row to row, where others have few values.
type numbers struct {
	kinds []numberKind
	start []uint32 // of each row, if there are any
	kind  vec[uint16]
	value vec[int64]
	times int // the kind that is profile's times, -1 for none
}

type numberKind struct{ key, unit string }

// of returns the first number of a row, and the one behind its last.
func (n *numbers) of(row int) (from, to int) {
	if row >= len(n.start) {
		return 0, 0
	}
	if row+1 < len(n.start) {
		return int(n.start[row]), int(n.start[row+1])
	}
	return int(n.start[row]), n.value.n
}

// LabelSets returns how many different sets of labels rows have.
func (s *samples) LabelSets() int { return len(s.sets.start) }

// LabelSet returns the labels of a set, without those that are measurements.
func (s *samples) LabelSet(n uint32) []Label { return s.sets.at(n) }

// Labels returns the number of a row's set of labels.
func (s *samples) Labels(row int) uint32 { return s.owner.at(row) }

// Measured adds to labels those of a row that are measurements with a unit, without its times.
func (s *samples) Measured(labels []Label, row int) []Label {
	from, to := s.numbers.of(row)
	for i := from; i < to; i++ {
		if kind := int(s.numbers.kind.at(i)); kind != s.numbers.times {
			k := s.numbers.kinds[kind]
			labels = append(labels, Label{Key: k.key, Unit: k.unit, Number: s.numbers.value.at(i)})
		}
	}
	return labels
}

// HasTimes reports whether any row has times.
func (s *samples) HasTimes() bool { return s.numbers.times >= 0 }

// Times adds to times those of a row, as profile.Times returns them.
func (s *samples) Times(times []int64, row int) []int64 {
	from, to := s.numbers.of(row)
	for i := from; i < to; i++ {
		if int(s.numbers.kind.at(i)) == s.numbers.times {
			times = append(times, s.numbers.value.at(i))
		}
	}
	return times
}
