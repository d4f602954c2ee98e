package fromperf

import (
	"fmt"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/perfdata"
)

// The events of software, by include/uapi/linux/perf_event.h.
const (
	cpuClock  = 0
	taskClock = 1
	dummy     = 9
)

// isClock reports whether an event measures time: its periods are nanoseconds.
func isClock(a perfdata.Attr) bool {
	return a.Type == typeSoftware && (a.Config == cpuClock || a.Config == taskClock)
}

// isDummy reports whether an event only reports processes and mappings.
func isDummy(a perfdata.Attr) bool { return a.Type == typeSoftware && a.Config == dummy }

// isNamed reports whether the event is called that, with or without perf's modifiers.
func isNamed(e *perfdata.Event, name string) bool {
	return name == eventName(e) || name == shortName(e)
}

// shortName returns the name of an event without perf's modifiers. That of a tracepoint has a
// colon of its own: sched:sched_switch.
func shortName(e *perfdata.Event) string {
	parts := strings.SplitN(eventName(e), ":", 3)
	if e.Attr.Type == typeTracepoint && len(parts) > 1 {
		return parts[0] + ":" + parts[1]
	}
	return parts[0]
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
	name := shortName(e)
	p.SampleType[1] = &pprof.ValueType{Type: name, Unit: "count"}
	p.PeriodType = &pprof.ValueType{Type: name, Unit: "count"}
	p.Period = 0
	if e.Attr.Flags&perfdata.AttrFreq == 0 {
		p.Period = int64(e.Attr.Period)
	}
	p.DefaultSampleType = name
}

// nameEvents says what the values of several events are, one for each.
func nameEvents(p *pprof.Profile, events []*tally) {
	nameValues(p, events[0].event)
	p.SampleType = p.SampleType[:1]
	times := map[string]int{}
	for _, t := range events {
		name := shortName(t.event)
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s#%d", name, times[name])
		}
		unit := "count"
		if isClock(t.event.Attr) {
			unit = "nanoseconds"
		}
		p.SampleType = append(p.SampleType, &pprof.ValueType{Type: name, Unit: unit})
	}
	p.DefaultSampleType = p.SampleType[1].Type
	for _, s := range p.Sample {
		widen(s, len(p.SampleType))
	}
}
