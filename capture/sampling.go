package capture

import (
	"fmt"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfring"
)

// Event is what makes a sample be taken.
type Event uint8

// The events that can be sampled.
const (
	// CPUClock samples by time on a CPU, through a timer of the kernel. It works
	// everywhere, virtual machines included.
	CPUClock Event = iota
	// Cycles samples by the processor's cycle counter, also where interrupts are
	// off. It needs a hardware counter.
	Cycles
)

// String returns perf's name of the event.
func (e Event) String() string {
	if e == Cycles {
		return "cycles"
	}
	return "cpu-clock"
}

// eventNames are perf's names of the events. A task-clock runs while its task does, as do the
// samples of a cpu-clock that are counted for a task.
var eventNames = map[string]Event{"cpu-clock": CPUClock, "task-clock": CPUClock, "cycles": Cycles, "cpu-cycles": Cycles}

// ParseEvent returns the event that perf calls name.
func ParseEvent(name string) (Event, error) {
	if e, ok := eventNames[name]; ok {
		return e, nil
	}
	return 0, fmt.Errorf("unknown event %q: there are cpu-clock (the same as task-clock) and cycles (cpu-cycles)", name)
}

// plan returns the plan of events that take so many samples a second.
func (e Event) plan(hz int) *perfring.Plan {
	p := perfring.NewPlan(hz)
	if e == Cycles {
		p.Samples.Type, p.Samples.Config = unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES
	}
	return p
}
