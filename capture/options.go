package capture

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/perfring"
	"hallmark/launch"
)

// Options say what is recorded. One of SystemWide, PIDs and Command is set;
// the zero value of everything else is right.
type Options struct {
	SystemWide bool            // every process on every CPU; needs CAP_PERFMON
	PIDs       []int           // these processes, with the children they will have
	Command    *launch.Command // this program, which Run releases, with its children

	// While is a program that Run releases as well, beside what it records of the machine or
	// of processes: the recording ends when it does. Nil for none.
	While *launch.Command

	Frequency int           // samples a second and CPU; 99 when 0
	Duration  time.Duration // how long Run records; until it is interrupted when 0
	Event     Event         // what makes a sample be taken
	Backend   Backend       // how samples are taken; chosen by what works here when Auto
	Timeline  bool          // keep when each sample was taken: see profile.Times
	CallGraph CallGraph     // how the callers of user code are found

	noTaskWork bool // for tests: as on kernels that have none
	// changePages is for tests: how many pages there are for the records of changes on a CPU, 0
	// for as many as there should be.
	changePages int
	copyAll     bool // for tests: see bpf.Options.CopyAll

	// TableEntries is how many files the table of the backend BPF has room for;
	// DefaultTableEntries when 0.
	TableEntries int

	// UnwindMemory is how many bytes of unwind tables the backend BPF has in the kernel at
	// most; DefaultUnwindMemory when 0.
	UnwindMemory int64

	// CacheDir is where what is the same for every recording is kept, for this user
	// alone: the kernel's symbols, unwind tables. It is made when it is missing; "" for
	// nowhere.
	CacheDir string

	// Progress is called a few times a second while Run records; nil for no call.
	Progress func(elapsed time.Duration, s Stats)
}

// DefaultFrequency is the number of samples a second and CPU: not 100, so as not
// to run in step with what happens at round intervals.
const DefaultFrequency = 99

// DefaultUnwindMemory is how many bytes of unwind tables the backend BPF has in the kernel
// unless Options say it.
const DefaultUnwindMemory = bpf.DefaultUnwindMemory

// DefaultTableEntries is enough for the files of a large machine, with room to spare.
const DefaultTableEntries = bpf.DefaultEntries

// Backend is a way of taking samples.
type Backend = backend.Backend

// The backends.
const (
	// Auto takes BPF where that works, else Perf.
	Auto = backend.Auto
	// Perf takes samples with perf events, and learns of mappings from their records.
	Perf = backend.Perf
	// BPF finds file and offset of every frame inside the kernel. It needs CAP_BPF and
	// CAP_PERFMON, which root has.
	BPF = backend.BPF
	// Stackmap takes samples by the kernel's own map of stacks with build IDs. It needs
	// what BPF needs, and is for comparison and for kernels that do not take BPF.
	Stackmap = backend.Stackmap
)

// ParseBackend returns the backend of this name.
func ParseBackend(name string) (Backend, error) { return backend.Parse(name) }

// DefaultBackend returns the way of recording that is taken where none is
// demanded, and why.
func DefaultBackend() (Backend, string) {
	if _, err := backend.TryBPF(); err != nil {
		return Perf, backend.WhyNot(err)
	}
	return BPF, "the file of every frame is found inside the kernel, also for processes that exit at once"
}

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

// CallGraph says how the callers of user code are found. The zero value is call frame
// information where the backend can use it: BPF in the kernel, Perf by copies of stacks. A copy
// costs about 0.1 ms of CPU time, which is 1 % of a processor at the usual frequency.
type CallGraph struct {
	By CallGraphBy
	// StackSize is how many bytes of the stack each sample of the backend Perf copies
	// with ByDWARF, a multiple of 8; DefaultStackSize when 0. Other backends copy none.
	StackSize int
}

// CallGraphBy is a way of finding callers.
type CallGraphBy uint8

// The ways.
const (
	AutoCallGraph CallGraphBy = iota
	// ByFP follows frame pointers, as the kernel does: cheap, and without what code that
	// keeps none has called.
	ByFP
	// ByDWARF unwinds by the call frame information of the files.
	ByDWARF
)

// DefaultStackSize holds the stacks of nearly all programs, at a cost that can be borne
// at the usual frequencies.
const DefaultStackSize = 16 << 10

// MaxStackSize is the most that a record has room for: its size is a number of 16 bits.
const MaxStackSize = 65528

// callGraphNames are perf's.
var callGraphNames = [...]string{AutoCallGraph: "auto", ByFP: "fp", ByDWARF: "dwarf"}

// String returns what ParseCallGraph understands.
func (c CallGraph) String() string {
	if c.StackSize != 0 {
		return fmt.Sprintf("%s,%d", callGraphNames[c.By], c.StackSize)
	}
	return callGraphNames[c.By]
}

// ParseCallGraph reads auto, fp, dwarf or dwarf,SIZE with a size in bytes.
func ParseCallGraph(s string) (CallGraph, error) {
	name, size, sized := strings.Cut(s, ",")
	for by, n := range callGraphNames {
		if n != name {
			continue
		}
		c := CallGraph{By: CallGraphBy(by)}
		if !sized {
			return c, nil
		}
		if c.By != ByDWARF {
			return CallGraph{}, fmt.Errorf("call graph %q: only dwarf has a size", s)
		}
		n, err := strconv.ParseUint(size, 0, 32)
		if err != nil || n == 0 || n%8 != 0 || n > MaxStackSize {
			return CallGraph{}, fmt.Errorf("call graph %q: the size is a multiple of 8 up to %d", s, MaxStackSize)
		}
		c.StackSize = int(n)
		return c, nil
	}
	return CallGraph{}, fmt.Errorf("unknown call graph %q: auto, fp and dwarf[,SIZE] can be asked for", s)
}
