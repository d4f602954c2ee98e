package profile

import pprof "github.com/google/pprof/profile"

// PerLocation has a value for each location that it is asked for, the zero value at
// first. Most profiles number their locations from 1 on: then it is found by the number,
// and else by the location itself. Make one with NewPerLocation.
type PerLocation[T any] struct {
	byID   []valueAt[T]
	others map[*pprof.Location]*T
}

type valueAt[T any] struct {
	location *pprof.Location
	value    T
}

// NewPerLocation returns zero values for the locations of p.
func NewPerLocation[T any](p *pprof.Profile) *PerLocation[T] {
	return &PerLocation[T]{byID: make([]valueAt[T], len(p.Location)+1)}
}

// At returns the value of a location. It stays where it is.
func (s *PerLocation[T]) At(l *pprof.Location) *T {
	if l.ID < uint64(len(s.byID)) {
		at := &s.byID[l.ID]
		if at.location == nil {
			at.location = l
		}
		if at.location == l {
			return &at.value
		}
	}
	return s.other(l)
}

func (s *PerLocation[T]) other(l *pprof.Location) *T {
	value := s.others[l]
	if value == nil {
		if s.others == nil {
			s.others = map[*pprof.Location]*T{}
		}
		value = new(T)
		s.others[l] = value
	}
	return value
}
