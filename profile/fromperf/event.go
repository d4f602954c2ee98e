package fromperf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/perfdata"
)

// Numbers of include/uapi/linux/perf_event.h: a type, and what it counts.
const (
	typeSoftware = 1
	cpuClock     = 0
	taskClock    = 1
	dummy        = 9
)

// isClock reports whether an event measures time: its periods are nanoseconds.
func isClock(a perfdata.Attr) bool {
	return a.Type == typeSoftware && (a.Config == cpuClock || a.Config == taskClock)
}

// isDummy reports whether an event only tells of processes and mappings.
func isDummy(a perfdata.Attr) bool { return a.Type == typeSoftware && a.Config == dummy }

func eventName(e *perfdata.Event) string {
	return cmp.Or(e.Name, fmt.Sprintf("type %d config %#x", e.Attr.Type, e.Attr.Config))
}

// isNamed reports whether the event is called that, with or without perf's modifiers.
func isNamed(e *perfdata.Event, name string) bool {
	full := eventName(e)
	short, _, _ := strings.Cut(full, ":")
	return name == full || name == short
}

func eventNames(list []*perfdata.Event) string {
	var names []string
	for _, e := range list {
		if name := eventName(e); !isDummy(e.Attr) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// samplePeriod is how much time lies between samples (ns), 0 when that is not known.
func samplePeriod(a perfdata.Attr) int64 {
	switch {
	case a.Period == 0:
		return 0
	case a.Flags&perfdata.AttrFreq != 0:
		return int64(1e9 / a.Period)
	case isClock(a):
		return int64(a.Period)
	}
	return 0
}

// weight is how many events, or nanoseconds, a sample stands for.
func weight(a perfdata.Attr, s *perfdata.Sample) int64 {
	if s.Period == 0 && isClock(a) {
		return samplePeriod(a)
	}
	return int64(max(s.Period, 1))
}

// nameValues says what the values are. The Builder's are nanoseconds on CPUs, and those
// of events that measure no time are a number of events.
func nameValues(p *pprof.Profile, e *perfdata.Event) {
	if isClock(e.Attr) {
		return
	}
	name, _, _ := strings.Cut(eventName(e), ":")
	p.SampleType[1] = &pprof.ValueType{Type: name, Unit: "count"}
	p.PeriodType = &pprof.ValueType{Type: name, Unit: "count"}
	p.Period = 0
	if e.Attr.Flags&perfdata.AttrFreq == 0 {
		p.Period = int64(e.Attr.Period)
	}
	p.DefaultSampleType = name
}
