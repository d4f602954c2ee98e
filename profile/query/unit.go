package query

import (
	"cmp"
	"fmt"

	"hallmark/profile"
)

// ratio is of two units.
type ratio struct{ times, each int64 }

func (r ratio) of(v int64) int64 {
	if r.times == 1 && r.each == 1 {
		return v
	}
	return v/r.each*r.times + v%r.each*r.times/r.each
}

// units are what profiles count in, as pprof names them, by what they measure: the sizes in the smallest.
var units = []map[string]int64{
	{"nanoseconds": 1, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9, "minutes": 60e9, "hours": 3600e9},
	{"bytes": 1, "kilobytes": 1 << 10, "megabytes": 1 << 20, "gigabytes": 1 << 30, "terabytes": 1 << 40},
}

// inUnit returns how values of a unit become those of another one.
func inUnit(from, to string) (ratio, error) {
	if from == to {
		return ratio{1, 1}, nil
	}
	for _, all := range units {
		a, b := all[from], all[to]
		switch {
		case a == 0 || b == 0:
		case a >= b:
			return ratio{a / b, 1}, nil
		default:
			return ratio{1, b / a}, nil
		}
	}
	return ratio{}, fmt.Errorf("counted in %s, and in %s by what it is compared with", cmp.Or(from, "no unit"), cmp.Or(to, "no unit"))
}

// wholeSum is what all of a profile counts.
type wholeSum struct {
	sum float64
	err error
}

// whole returns the sum of all values of a type, each without its sign; or an error where what is added up does not fit
// into 64 bits, as every selection adds up some of that.
func (s *side) whole(kind int, in ratio) (float64, error) {
	s.wholes.mu.Lock()
	defer s.wholes.mu.Unlock()
	w, known := s.wholes.of[kind]
	if !known {
		w = s.addUp(kind, in)
		if s.wholes.of == nil {
			s.wholes.of = map[int]wholeSum{}
		}
		s.wholes.of[kind] = w
	}
	return w.sum, w.err
}

func (s *side) addUp(kind int, in ratio) wholeSum {
	var values, frames profile.Magnitude
	count, err := s.p.SampleType("samples")
	deepest := uint64(max(1, s.p.Stacks().Deepest()))
	for row := range s.p.Samples() {
		values.Add(s.p.Value(row, kind), uint64(in.times))
		n := int64(1)
		if err == nil {
			n = s.p.Value(row, count)
		}
		frames.Add(n, deepest)
	}
	return wholeSum{
		float64(values.Sum()) / float64(in.each),
		cmp.Or(values.Err(s.p.SampleTypes()[kind].Type), frames.Err("frames")),
	}
}
