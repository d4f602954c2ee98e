package profile

import (
	"maps"
	"slices"

	pprof "github.com/google/pprof/profile"
)

// timeLabel is the numeric label for the times at which a stack was seen, in
// nanoseconds since 1970, one value for each time. Of a recording by another tool that
// does not say what time of day it was, the profile has no time either
// (Profile.TimeNanos is 0), and these are of that recording's clock.
//
// pprof itself has no field and no name for it (github.com/google/pprof, issue 457
// and pull request 728). Of what there is, this is closest to OpenTelemetry's
// profiles: samples stay counted together and have a list, timestamps_unix_nano. So
// a profile with times is the same as one without for every tool that does not
// know them. Datadog's profilers write a sample for each time, with one value in
// the label end_timestamp_ns, which costs a stack each.
const (
	timeLabel = "timestamp"
	timeUnit  = "nanoseconds"
)

// AddTimes notes when a stack was seen, in nanoseconds since 1970.
func AddTimes(s *pprof.Sample, times []int64) {
	if len(times) == 0 {
		return
	}
	all := slices.Concat(Times(s), times)
	// Samples may share their maps.
	s.NumLabel, s.NumUnit = maps.Clone(s.NumLabel), maps.Clone(s.NumUnit)
	if s.NumLabel == nil {
		s.NumLabel = map[string][]int64{}
	}
	if s.NumUnit == nil {
		s.NumUnit = map[string][]string{}
	}
	s.NumLabel[timeLabel], s.NumUnit[timeLabel] = all, slices.Repeat([]string{timeUnit}, len(all))
}

// AddTimes does the same for a sample of the Builder's profile, in a fraction of the memory:
// the sample keeps the list itself, if it is the first one, and shares the names of units with
// others that have as many.
func (b *Builder) AddTimes(s *pprof.Sample, times []int64) {
	if len(times) == 0 {
		return
	}
	earlier := Times(s)
	if len(s.NumUnit) > 1 || len(s.NumUnit) == 1 && earlier == nil { // the caller's own
		AddTimes(s, times)
		return
	}
	if len(earlier) > 0 {
		times = slices.Concat(earlier, times)
	}
	s.NumLabel = maps.Clone(s.NumLabel) // samples may share it
	if s.NumLabel == nil {
		s.NumLabel = map[string][]int64{}
	}
	s.NumLabel[timeLabel], s.NumUnit = times, b.units.of(len(times))
}

// timeUnits are the units of samples by how many times they have.
type timeUnits struct {
	maps  map[int]map[string][]string
	names []string // as many as the one that has most has times, or more
}

func (u *timeUnits) of(n int) map[string][]string {
	if u.maps == nil {
		u.maps = map[int]map[string][]string{}
	}
	units := u.maps[n]
	if units == nil {
		if n > len(u.names) {
			u.names = slices.Repeat([]string{timeUnit}, max(n, 2*len(u.names)))
		}
		units = map[string][]string{timeLabel: u.names[:n:n]}
		u.maps[n] = units
	}
	return units
}

// Times returns when the stack was seen, in nanoseconds since 1970 and in no order:
// as often as it was counted, or less often where times were not kept.
func Times(s *pprof.Sample) []int64 {
	if units := s.NumUnit[timeLabel]; len(units) == 0 || units[0] != timeUnit {
		return nil // somebody else's label
	}
	return s.NumLabel[timeLabel]
}
