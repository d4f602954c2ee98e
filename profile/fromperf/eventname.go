package fromperf

import (
	"fmt"
	"strings"

	"hallmark/perfdata"
)

// Types of events, PERF_TYPE_* of include/uapi/linux/perf_event.h.
const (
	typeHardware   = 0
	typeSoftware   = 1
	typeTracepoint = 2
	typeCache      = 3
	typeRaw        = 4
	typeBreakpoint = 5
)

// eventName returns the name of an event: the one that was given to perf, and in files that do
// not have it (streams of old versions), the one that perf makes of the attributes.
func eventName(e *perfdata.Event) string {
	if e.Name != "" {
		return e.Name
	}
	return madeUpName(e.Attr)
}

// madeUpName names an event by its attributes, as evsel__name of perf's tools/perf/util/evsel.c.
func madeUpName(a perfdata.Attr) string {
	name := ""
	switch a.Type {
	case typeHardware: // the upper half is the number of a kind of CPU
		name = nameOf(hardwareNames, a.Config&(1<<32-1), "unknown-hardware")
	case typeSoftware:
		name = nameOf(softwareNames, a.Config, "unknown-software")
	case typeTracepoint:
		return "unknown tracepoint"
	case typeCache:
		name = cacheName(a.Config)
	case typeRaw:
		name = fmt.Sprintf("raw 0x%x", a.Config)
	case typeBreakpoint:
		name = breakpointName(a)
	default:
		return fmt.Sprintf("type %d config %#x", a.Type, a.Config)
	}
	return name + modifiers(a.Flags)
}

func nameOf(names []string, n uint64, unknown string) string {
	if n < uint64(len(names)) {
		return names[n]
	}
	return unknown
}

// PERF_COUNT_HW_* and PERF_COUNT_SW_*.
var (
	hardwareNames = []string{"cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
		"bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"}
	softwareNames = []string{"cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations", "minor-faults",
		"major-faults", "alignment-faults", "emulation-faults", "dummy", "bpf-output", "cgroup-switches"}
)

// PERF_COUNT_HW_CACHE_*: which cache, what was done, and how it ended.
var (
	cacheNames = []string{"L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"}
	cacheDoes  = []string{"lsp", "lp", "lsp", "lsp", "l", "l", "lsp"} // loads, stores, prefetches
	cacheOps   = []struct{ one, many string }{{"load", "loads"}, {"store", "stores"}, {"prefetch", "prefetches"}}
)

// cacheName names an event of a cache: L1-dcache-loads, LLC-store-misses.
func cacheName(config uint64) string {
	which, op, result := config&0xff, config>>8&0xff, config>>16&0xff
	switch {
	case which >= uint64(len(cacheNames)):
		return "unknown-ext-hardware-cache-type"
	case op >= uint64(len(cacheOps)):
		return "unknown-ext-hardware-cache-op"
	case result > 1:
		return "unknown-ext-hardware-cache-result"
	case !strings.Contains(cacheDoes[which], cacheOps[op].one[:1]):
		return "invalid-cache"
	case result == 1:
		return cacheNames[which] + "-" + cacheOps[op].one + "-misses"
	}
	return cacheNames[which] + "-" + cacheOps[op].many
}

// breakpointName names a breakpoint by its address and what it stops at: mem:0x4000:rw.
func breakpointName(a perfdata.Attr) string {
	name := fmt.Sprintf("mem:0x%x:", a.Config1)
	for i, letter := range []string{"r", "w", "x"} { // HW_BREAKPOINT_*
		if a.BreakpointType>>i&1 != 0 {
			name += letter
		}
	}
	return name
}

// The flags that perf shows behind names.
const (
	excludeUser   perfdata.AttrFlags = 1 << 4
	excludeKernel perfdata.AttrFlags = 1 << 5
	excludeHV     perfdata.AttrFlags = 1 << 6
	preciseShift                     = 15 // of two bits
	excludeHost   perfdata.AttrFlags = 1 << 19
	excludeGuest  perfdata.AttrFlags = 1 << 20
)

// modifiers are what perf puts behind a name: where the event counts (evsel__add_modifiers).
func modifiers(f perfdata.AttrFlags) string {
	var all strings.Builder
	put := func(excluded perfdata.AttrFlags, letter byte) {
		if f&excluded == 0 {
			all.WriteByte(letter)
		}
	}
	precise := int(f >> preciseShift & 3)
	somewhere := f&(excludeKernel|excludeUser|excludeHV) != 0
	if somewhere {
		put(excludeKernel, 'k')
		put(excludeUser, 'u')
		put(excludeHV, 'h')
	}
	all.WriteString("ppp"[:precise])
	noGuest := somewhere || precise > 0 // what perf asks for then by itself
	if f&excludeHost != 0 || (f&excludeGuest != 0) == noGuest {
		put(excludeHost, 'H')
		put(excludeGuest, 'G')
	}
	if all.Len() == 0 {
		return ""
	}
	return ":" + all.String()
}
