// Package perfring opens perf events and reads their records: the events of a recording with what
// this kernel and this user allow, the rings of the CPUs, the order of their records in time, the
// wait for new ones, and the clocks that times are of. See perf_event_open(2).
package perfring

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

	"hallmark/internal/patience"
	"hallmark/internal/perfregs"
	"hallmark/perfdata"
)

// sampleFields is what every sample has where the kernel allows cgroups.
const sampleFields = perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime |
	perfdata.SampleCPU | perfdata.SamplePeriod | perfdata.SampleCallchain

// Bits of struct perf_event_attr that golang.org/x/sys/unix does not name.
const (
	BitKsymbol = 1 << 29
	BitCgroup  = 1 << 32
	BitBuildID = 1 << 34
)

// FormatLost is PERF_FORMAT_LOST: a read of an event then returns how many records it lost, too.
const FormatLost = 1 << 4

// Plan is how events are opened here: what was wanted, less what this
// kernel or this user's rights refuse. Each thread and CPU has two events, and a third one where
// WithNumbers was called.
type Plan struct {
	// Samples is the event that takes samples. Its ring is read when it has
	// filled up to a part.
	Samples unix.PerfEventAttr
	// Changes is the event that records changes of processes and mappings. It counts
	// nothing. Its ring is read at once, while the processes are there.
	Changes unix.PerfEventAttr
	// Reduced names, for people, what had to be given up.
	Reduced []string
	// numbers are the events that record mappings a second time: see Joiner. It is nil where there are none.
	numbers map[uint64]bool
}

// Events are the events of a thread on a CPU, -1 for one that was not opened.
type Events struct {
	Samples, Changes int
	// Numbers has the device, the inode and the generation of what is mapped, where Changes has build IDs. It
	// has to write into the ring of Changes, and to start before it: see Joiner.
	Numbers int
}

// Close closes the events.
func (e Events) Close() error {
	var errs []error
	for _, fd := range []int{e.Samples, e.Changes, e.Numbers} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// NewPlan asks for everything, with samples by time on a CPU, hz a second.
func NewPlan(hz int) *Plan {
	common := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: uint64(sampleFields | perfdata.SampleCgroup),
		Clockid:     unix.CLOCK_MONOTONIC,
		Bits: unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitWatermark | unix.PerfBitExcludeIdle,
		Read_format: FormatLost,
	}
	p := &Plan{Samples: common, Changes: common}
	p.Samples.Config = unix.PERF_COUNT_SW_CPU_CLOCK
	p.Samples.Sample = uint64(hz)
	p.Samples.Bits |= unix.PerfBitFreq
	p.Samples.Wakeup = uint32(SamplePages * os.Getpagesize() / 2)
	p.Changes.Config = unix.PERF_COUNT_SW_DUMMY
	p.Changes.Bits |= unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask |
		BitKsymbol | BitCgroup | BitBuildID
	p.Changes.Wakeup = 1
	return p
}

// CopyStacks lets samples bring the registers of user code and so many bytes of its
// stack, beside the callers that frame pointers lead to.
func (p *Plan) CopyStacks(m *perfregs.Machine, size, pages int) {
	p.Samples.Sample_type |= uint64(perfdata.SampleRegsUser | perfdata.SampleStackUser)
	p.Samples.Sample_regs_user = m.Mask()
	p.Samples.Sample_stack_user = uint32(size)
	p.Samples.Wakeup = uint32(pages * os.Getpagesize() / 4) // a small ring has room for few copies
}

// EnableOnExec lets the events start with the next execve.
func (p *Plan) EnableOnExec() {
	p.Samples.Bits |= unix.PerfBitEnableOnExec
	p.Changes.Bits |= unix.PerfBitEnableOnExec
}

// TagEvents adds the number of its event (PERF_SAMPLE_ID) to each record.
func (p *Plan) TagEvents() {
	p.Samples.Sample_type |= uint64(perfdata.SampleID)
	p.Changes.Sample_type |= uint64(perfdata.SampleID)
}

// WithNumbers has mappings be recorded a second time where their records have build IDs. Each record then has the
// number of its event.
func (p *Plan) WithNumbers() {
	p.TagEvents()
	p.numbers = map[uint64]bool{}
}

// numbersAttr returns what the event has that records mappings a second time, before the one with build IDs.
func (p *Plan) numbersAttr() unix.PerfEventAttr {
	attr := p.Changes
	attr.Bits &^= unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask | BitKsymbol | BitCgroup | BitBuildID
	return attr
}

// concessions are given up one after the other while the kernel answers EINVAL,
// the newest first: 5.12, 5.7 and 5.1 brought them.
var concessions = []struct {
	name   string
	bits   uint64
	fields perfdata.SampleType
}{
	{"build IDs in mapping records (Linux 5.12)", BitBuildID, 0},
	{"cgroups (Linux 5.7 with CONFIG_CGROUP_PERF)", BitCgroup, perfdata.SampleCgroup},
	{"names of BPF programs that come and go (Linux 5.1)", BitKsymbol, 0},
}

// Open opens the events for a thread (-1: all) on a CPU, and on the first
// refusals cuts the plan down to what is possible. The caller closes them.
func (p *Plan) Open(tid, cpu int) (Events, error) {
	for {
		events, err := p.try(tid, cpu)
		if err == nil || !p.Concede(err) {
			return events, err
		}
	}
}

func (p *Plan) try(tid, cpu int) (events Events, err error) {
	events = Events{-1, -1, -1}
	if events.Samples, err = OpenEvent(&p.Samples, tid, cpu); err != nil {
		return events, err
	}
	if events.Changes, events.Numbers, err = p.tryChanges(tid, cpu); err != nil {
		return Events{-1, -1, -1}, errors.Join(err, events.Close())
	}
	return events, nil
}

// OpenChanges is Open for the events that record changes.
func (p *Plan) OpenChanges(tid, cpu int) (Events, error) {
	for {
		changes, numbers, err := p.tryChanges(tid, cpu)
		if err == nil || !p.Concede(err) {
			return Events{-1, changes, numbers}, err
		}
	}
}

func (p *Plan) tryChanges(tid, cpu int) (changes, numbers int, err error) {
	if changes, err = OpenEvent(&p.Changes, tid, cpu); err != nil {
		return -1, -1, err
	}
	if p.numbers == nil || p.Changes.Bits&BitBuildID == 0 {
		return changes, -1, nil
	}
	attr := p.numbersAttr()
	if numbers, err = OpenEvent(&attr, tid, cpu); err != nil {
		unix.Close(changes)
		return -1, -1, err
	}
	id, err := EventID(numbers)
	if err != nil {
		unix.Close(changes)
		unix.Close(numbers)
		return -1, -1, err
	}
	p.numbers[id] = true
	return changes, numbers, nil
}

// EventID returns the number of an event, which those that inherit it have as well.
func EventID(fd int) (id uint64, err error) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, fmt.Errorf("asking for the number of a perf event: %w", errno)
	}
	return id, nil
}

// OpenEvent opens an event of a thread (-1: all) on a CPU. The kernel waits for a thread that is executing
// a program, maybe for ever: then the error is patience.ErrSilent.
func OpenEvent(attr *unix.PerfEventAttr, tid, cpu int) (fd int, err error) {
	open := func(attr *unix.PerfEventAttr) (int, error) {
		return unix.PerfEventOpen(attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	if tid <= 0 {
		return open(attr)
	}
	kept := *attr // the plan may change when nobody waits any more
	fd, err = patience.InTimeOr(tid, patience.ProcessTime, func() (int, error) { return open(&kept) }, func(fd int) { unix.Close(fd) })
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// Concede gives up the newest part of the plan that may have caused err, an error of
// perf_event_open(2). It reports false when nothing is left to give up.
func (p *Plan) Concede(err error) bool {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		if p.Samples.Bits&unix.PerfBitExcludeKernel != 0 {
			return false
		}
		p.Samples.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
		p.Changes.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
		p.Changes.Bits &^= BitKsymbol
		p.Reduced = append(p.Reduced, "kernel code (kernel.perf_event_paranoid allows user code only)")
		return true
	}
	if !errors.Is(err, unix.EINVAL) {
		return false
	}
	if p.Samples.Read_format != 0 { // Linux 6.0; records report losses as well
		p.Samples.Read_format, p.Changes.Read_format = 0, 0
		return true
	}
	for _, c := range concessions {
		if p.Changes.Bits&c.bits != 0 {
			p.Changes.Bits &^= c.bits
			p.Samples.Sample_type &^= uint64(c.fields)
			p.Changes.Sample_type &^= uint64(c.fields)
			p.Reduced = append(p.Reduced, c.name)
			return true
		}
	}
	return false
}

// Decoder returns a decoder of what the records have in the end.
func (p *Plan) Decoder() (*perfdata.Decoder, error) {
	return perfdata.NewAttrDecoder(perfdata.Attr{
		Fields:   perfdata.SampleType(p.Samples.Sample_type),
		Flags:    perfdata.AttrSampleIDAll | perfdata.AttrFlags(p.Changes.Bits)&perfdata.AttrBuildID,
		UserRegs: p.Samples.Sample_regs_user,
	}, binary.NativeEndian.Uint16([]byte{0, 1}) == 1)
}

// OpenError says what an error of perf_event_open for the event, which has this name of perf's,
// means to the user.
func OpenError(event string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("the kernel refuses perf events (%w): run with CAP_PERFMON, as root has it, or lower kernel.perf_event_paranoid (now %s); a user may always record own processes at 2", err, ParanoidLevel())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("this machine cannot sample %s (%w): use --event cpu-clock", event, err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("the kernel has no perf events or a sandbox hides them: %w", err)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("too many open files for one event a thread and CPU: raise 'ulimit -n' or record fewer processes: %w", err)
	}
	return fmt.Errorf("opening a perf event: %w", err)
}

// MaxFrequency is the kernel's limit, which it lowers by itself on a machine that
// is too slow for it.
func MaxFrequency() int {
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

// ParanoidLevel returns the value of kernel.perf_event_paranoid, "unknown" where it is hidden.
func ParanoidLevel() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// OnlineCPUs returns the numbers of the CPUs that are online. When sysfs is not
// there, they are taken to be numbered from 0.
func OnlineCPUs() ([]int, error) {
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

// Enable starts events.
func Enable(fds []int) error {
	for _, fd := range fds {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("starting the perf events: %w", err)
		}
	}
	return nil
}

// Disable stops events.
func Disable(fds []int) {
	for _, fd := range fds {
		// It fails only for an event that never came to be.
		_ = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0)
	}
}
