package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfregs"
	"hallmark/perfdata"
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

// sampleFields is what every sample has where the kernel allows cgroups.
const sampleFields = perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime |
	perfdata.SampleCPU | perfdata.SamplePeriod | perfdata.SampleCallchain

// Bits of struct perf_event_attr that golang.org/x/sys/unix does not name.
const (
	bitKsymbol = 1 << 29
	bitCgroup  = 1 << 32
	bitBuildID = 1 << 34
)

// formatLost, PERF_FORMAT_LOST, lets reading an event tell what it lost.
const formatLost = 1 << 4

// eventPlan is how events are opened here: what was wanted, less what this
// kernel or this user's rights refuse. Each thread and CPU has two events.
type eventPlan struct {
	// samples is the event that takes samples. Its ring is read when it has
	// filled up to a part.
	samples unix.PerfEventAttr
	// changes is the event that tells of processes and mappings and counts
	// nothing. Its ring is read at once, while what it tells of is there.
	changes unix.PerfEventAttr
	// reduced names, for people, what had to be given up.
	reduced []string
}

// newEventPlan asks for everything.
func newEventPlan(event Event, hz int) *eventPlan {
	common := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: uint64(sampleFields | perfdata.SampleCgroup),
		Clockid:     unix.CLOCK_MONOTONIC,
		Bits: unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitWatermark | unix.PerfBitExcludeIdle,
		Read_format: formatLost,
	}
	p := &eventPlan{samples: common, changes: common}
	p.samples.Config = unix.PERF_COUNT_SW_CPU_CLOCK
	if event == Cycles {
		p.samples.Type, p.samples.Config = unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES
	}
	p.samples.Sample = uint64(hz)
	p.samples.Bits |= unix.PerfBitFreq
	p.samples.Wakeup = uint32(samplePages * os.Getpagesize() / 2)
	p.changes.Config = unix.PERF_COUNT_SW_DUMMY
	p.changes.Bits |= unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask |
		bitKsymbol | bitCgroup | bitBuildID
	p.changes.Wakeup = 1
	return p
}

// copyStacks lets samples bring the registers of user code and so many bytes of its
// stack, beside the callers that frame pointers lead to.
func (p *eventPlan) copyStacks(m *perfregs.Machine, size, pages int) {
	p.samples.Sample_type |= uint64(perfdata.SampleRegsUser | perfdata.SampleStackUser)
	p.samples.Sample_regs_user = m.Mask()
	p.samples.Sample_stack_user = uint32(size)
	p.samples.Wakeup = uint32(pages * os.Getpagesize() / 4) // a small ring has room for few copies
}

// enableOnExec lets the events start with the next execve.
func (p *eventPlan) enableOnExec() {
	p.samples.Bits |= unix.PerfBitEnableOnExec
	p.changes.Bits |= unix.PerfBitEnableOnExec
}

// tellEvents lets records tell of which event they are.
func (p *eventPlan) tellEvents() {
	p.samples.Sample_type |= uint64(perfdata.SampleID)
	p.changes.Sample_type |= uint64(perfdata.SampleID)
}

// concessions are given up one after the other while the kernel answers EINVAL,
// the newest first: 5.12, 5.7 and 5.1 brought them.
var concessions = []struct {
	name   string
	bits   uint64
	fields perfdata.SampleType
}{
	{"build IDs in mapping records (Linux 5.12)", bitBuildID, 0},
	{"cgroups (Linux 5.7 with CONFIG_CGROUP_PERF)", bitCgroup, perfdata.SampleCgroup},
	{"names of BPF programs that come and go (Linux 5.1)", bitKsymbol, 0},
}

// open opens both events for a thread (-1: all) on a CPU, and on the first
// refusals cuts the plan down to what is possible. The caller closes them.
func (p *eventPlan) open(tid, cpu int) (samples, changes int, err error) {
	for {
		samples, changes, err = p.try(tid, cpu)
		if err == nil || !p.concede(err) {
			return samples, changes, err
		}
	}
}

func (p *eventPlan) try(tid, cpu int) (samples, changes int, err error) {
	samples, err = unix.PerfEventOpen(&p.samples, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, -1, err
	}
	changes, err = unix.PerfEventOpen(&p.changes, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		unix.Close(samples)
		return -1, -1, err
	}
	return samples, changes, nil
}

func (p *eventPlan) concede(err error) bool {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		if p.samples.Bits&unix.PerfBitExcludeKernel != 0 {
			return false
		}
		p.samples.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
		p.changes.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
		p.changes.Bits &^= bitKsymbol
		p.reduced = append(p.reduced, "kernel code (kernel.perf_event_paranoid allows user code only)")
		return true
	}
	if !errors.Is(err, unix.EINVAL) {
		return false
	}
	if p.samples.Read_format != 0 { // Linux 6.0; losses are told by records as well
		p.samples.Read_format, p.changes.Read_format = 0, 0
		return true
	}
	for _, c := range concessions {
		if p.changes.Bits&c.bits != 0 {
			p.changes.Bits &^= c.bits
			p.samples.Sample_type &^= uint64(c.fields)
			p.changes.Sample_type &^= uint64(c.fields)
			p.reduced = append(p.reduced, c.name)
			return true
		}
	}
	return false
}

// decoder returns a decoder of what the records have in the end.
func (p *eventPlan) decoder() (*perfdata.Decoder, error) {
	return perfdata.NewAttrDecoder(perfdata.Attr{
		Fields:   perfdata.SampleType(p.samples.Sample_type),
		Flags:    perfdata.AttrSampleIDAll | perfdata.AttrFlags(p.changes.Bits)&perfdata.AttrBuildID,
		UserRegs: p.samples.Sample_regs_user,
	}, binary.NativeEndian.Uint16([]byte{0, 1}) == 1)
}

// openError says what an error of perf_event_open means to the user.
func openError(event Event, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("the kernel refuses perf events (%w): run with CAP_PERFMON, as root has it, or lower kernel.perf_event_paranoid (now %s); a user may always record own processes at 2", err, paranoid())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("this machine cannot sample %v (%w): use --event cpu-clock", event, err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("the kernel has no perf events or a sandbox hides them: %w", err)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("too many open files for one event a thread and CPU: raise 'ulimit -n' or record fewer processes: %w", err)
	}
	return fmt.Errorf("opening a perf event: %w", err)
}

// maxFrequency is the kernel's limit, which it lowers by itself on a machine that
// is too slow for it.
func maxFrequency() int {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_sample_rate")
	if err != nil {
		return math.MaxInt32
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return math.MaxInt32
	}
	return n
}

func paranoid() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// onlineCPUs returns the numbers of the CPUs that are online. When sysfs is not
// there, they are taken to be numbered from 0.
func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		cpus := make([]int, runtime.NumCPU())
		for i := range cpus {
			cpus[i] = i
		}
		return cpus, nil
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// maxCPU is a number that no CPU has, far above the kernel's NR_CPUS.
const maxCPU = 1 << 16

// parseCPUs reads a CPU list such as "0-3,8": Documentation/admin-guide/cputopology.rst.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || last < first || len(cpus) > maxCPU {
			return nil, fmt.Errorf("cannot read the list of CPUs %q", list)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
