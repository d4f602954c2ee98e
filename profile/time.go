package profile

import (
	"maps"
	"slices"

	pprof "github.com/google/pprof/profile"
)

// timeLabel is the numeric label for the times at which a stack was seen, in
// nanoseconds since 1970, one value for each time. Of a recording by another tool that
// does not tell what time of day it was, the profile has no time either
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
	setTimes(s, all, slices.Repeat([]string{timeUnit}, len(all)))
}

// AddTimes does the same for a sample of the Builder's profile, in a third of the memory: the
// sample keeps the list itself, if it is the first one, and shares the names of units with
// others.
func (b *Builder) AddTimes(s *pprof.Sample, times []int64) {
	if len(times) == 0 {
		return
	}
	if earlier := Times(s); len(earlier) > 0 {
		times = slices.Concat(earlier, times)
	}
	if len(times) > len(b.timeUnits) {
		b.timeUnits = slices.Repeat([]string{timeUnit}, max(len(times), 2*len(b.timeUnits)))
	}
	setTimes(s, times, b.timeUnits[:len(times):len(times)])
}

func setTimes(s *pprof.Sample, times []int64, units []string) {
	// Samples may share their maps.
	s.NumLabel, s.NumUnit = maps.Clone(s.NumLabel), maps.Clone(s.NumUnit)
	if s.NumLabel == nil {
		s.NumLabel = map[string][]int64{}
	}
	if s.NumUnit == nil {
		s.NumUnit = map[string][]string{}
	}
	s.NumLabel[timeLabel], s.NumUnit[timeLabel] = times, units
}

// Times returns when the stack was seen, in nanoseconds since 1970 and in no order:
// as often as it was counted, or less often where times were not kept.
func Times(s *pprof.Sample) []int64 {
	if units := s.NumUnit[timeLabel]; len(units) == 0 || units[0] != timeUnit {
		return nil // somebody else's label
	}
	return s.NumLabel[timeLabel]
}
