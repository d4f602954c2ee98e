package toperf

import (
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/perfdata"
)

// Types and numbers of events of include/uapi/linux/perf_event.h.
const (
	typeHardware = 0
	typeSoftware = 1
	typeRaw      = 4

	cpuClock = 0
)

// kind is how the kernel numbers an event.
type kind struct {
	class  uint32
	config uint64
}

var kinds = map[string]kind{
	"cycles": {typeHardware, 0}, "cpu-cycles": {typeHardware, 0}, "instructions": {typeHardware, 1},
	"cache-references": {typeHardware, 2}, "cache-misses": {typeHardware, 3},
	"branches": {typeHardware, 4}, "branch-misses": {typeHardware, 5},
	"page-faults": {typeSoftware, 2}, "faults": {typeSoftware, 2}, "context-switches": {typeSoftware, 3}, "cs": {typeSoftware, 3},
	"minor-faults": {typeSoftware, 5}, "major-faults": {typeSoftware, 6},
}

// eventOf returns the event whose periods are values of a type. Time on CPUs is
// cpu-clock; what the kernel has no number for has its name only.
func eventOf(p *pprof.Profile, t *pprof.ValueType, cgroups bool) *perfdata.Event {
	e := &perfdata.Event{Name: t.Type, IDs: []uint64{1}}
	k, known := kinds[t.Type]
	switch {
	case t.Unit == "nanoseconds":
		e.Name, k = "cpu-clock", kind{typeSoftware, cpuClock}
	case !known:
		k = kind{class: typeRaw}
	}
	e.Name = strings.Map(printable, e.Name)
	e.Attr = perfdata.Attr{
		Type: k.class, Config: k.config, Period: uint64(max(p.Period, 1)),
		Fields: perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime | perfdata.SamplePeriod |
			perfdata.SampleCallchain | perfdata.SampleIdentifier,
		Read: perfdata.ReadID,
		Flags: perfdata.AttrMmap | perfdata.AttrMmap2 | perfdata.AttrComm | perfdata.AttrTask | perfdata.AttrInherit |
			perfdata.AttrSampleIDAll | perfdata.AttrUseClockID | perfdata.AttrKsymbol | perfdata.AttrBuildID,
		ClockID: clockRealtime,
	}
	if cgroups {
		e.Attr.Fields |= perfdata.SampleCgroup
		e.Attr.Flags |= perfdata.AttrCgroup
	}
	return e
}

// clockRealtime is CLOCK_REALTIME of clock_gettime(2): nanoseconds since 1970, as the
// times of profiles are.
const clockRealtime = 0

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '_'
	}
	return r
}
