package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/bpf"
	"hallmark/procmap"
)

// Answer is what a probe found: yes, no, or that it could not tell.
type Answer uint8

// The answers of a probe.
const (
	Unknown Answer = iota // the probe could not tell
	No
	Yes
)

// String returns "yes", "no" or "unknown".
func (a Answer) String() string {
	return [...]string{"unknown", "no", "yes"}[a]
}

// MarshalText returns what String returns.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Feature is something that this machine and this user may have or not, found
// out by trying.
type Feature struct {
	Name   string `json:"name"`
	Answer Answer `json:"answer"`
	Detail string `json:"detail,omitempty"` // what was found
	Cost   string `json:"cost,omitempty"`   // what is lost without it
	Remedy string `json:"remedy,omitempty"` // how to get it
}

// Features tries everything that recording depends on.
func Features() []Feature {
	return []Feature{
		probeOwn(),
		probeKernelCode(),
		probeSystemWide(),
		probeBuildIDs(),
		probeCgroups(),
		probeCycles(),
		probeQuery(),
		probeForeign(),
		probeMapFiles(),
		probeKallsyms(),
		probeKernelID(),
		probeDebugFiles(),
		probeBPF(),
		probeTaskWork(),
	}
}

// tryEvent opens an event for this thread, or for all threads of CPU 0.
func tryEvent(attr unix.PerfEventAttr, everybody bool) error {
	attr.Size = uint32(unsafe.Sizeof(attr))
	pid, cpu := 0, -1
	if everybody {
		pid, cpu = -1, 0
	}
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// clockAttr is a clock event of user code.
func clockAttr() unix.PerfEventAttr {
	return unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: DefaultFrequency,
		Bits: unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitMmap | unix.PerfBitMmap2 |
			unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
}

// answer says what an attempt to open an event tells: refusals are a no, running
// out of descriptors for instance tells nothing.
func answer(err error) (Answer, string) {
	switch {
	case err == nil:
		return Yes, ""
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EBUSY):
		return Unknown, err.Error()
	}
	return No, err.Error()
}

func probeOwn() Feature {
	f := Feature{
		Name:   "record own processes",
		Cost:   "nothing can be recorded",
		Remedy: "sysctl kernel.perf_event_paranoid=2, and let the sandbox pass perf_event_open",
	}
	f.Answer, f.Detail = answer(tryEvent(clockAttr(), false))
	if f.Detail == "" {
		f.Detail = "kernel.perf_event_paranoid is " + paranoid()
	}
	return f
}

func probeKernelCode() Feature {
	f := Feature{
		Name:   "record kernel code",
		Cost:   "stacks end where the kernel begins",
		Remedy: "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1",
	}
	attr := clockAttr()
	attr.Bits &^= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
	f.Answer, f.Detail = answer(tryEvent(attr, false))
	return f
}

func probeSystemWide() Feature {
	f := Feature{
		Name:   "record every process (-a)",
		Cost:   "only own processes can be recorded",
		Remedy: "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0",
	}
	f.Answer, f.Detail = answer(tryEvent(clockAttr(), true))
	return f
}

func probeBuildIDs() Feature {
	f := Feature{
		Name:   "build IDs in mapping records",
		Cost:   "files are identified by opening them, so those of processes that exit at once may be missed",
		Remedy: "Linux 5.12",
	}
	attr := clockAttr()
	attr.Bits |= bitBuildID
	f.Answer, f.Detail = answer(tryEvent(attr, false))
	return f
}

func probeCgroups() Feature {
	f := Feature{
		Name:   "cgroup of each sample",
		Cost:   "samples do not tell their cgroup and container",
		Remedy: "Linux 5.7 with CONFIG_CGROUP_PERF",
	}
	attr := clockAttr()
	attr.Bits |= bitCgroup
	attr.Sample_type |= unix.PERF_SAMPLE_CGROUP
	f.Answer, f.Detail = answer(tryEvent(attr, false))
	return f
}

func probeCycles() Feature {
	f := Feature{
		Name:   "hardware cycle counter",
		Cost:   "no --event cycles; kernel code that runs with interrupts off is seen late by cpu-clock",
		Remedy: "a machine, or a virtual machine, with a performance monitoring unit",
	}
	attr := clockAttr()
	attr.Type, attr.Config = unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES
	f.Answer, f.Detail = answer(tryEvent(attr, false))
	return f
}

func probeQuery() Feature {
	f := Feature{
		Name:   "query mappings by address",
		Cost:   "the text of /proc/PID/maps is read instead, which is slower",
		Remedy: "Linux 6.11",
	}
	p, err := procmap.OpenOptions(os.Getpid(), procmap.Options{Method: procmap.Query})
	switch {
	case err == nil:
		f.Answer, f.Detail = Yes, "PROCMAP_QUERY"
		p.Close()
	case errors.Is(err, errors.ErrUnsupported):
		f.Answer = No
	default:
		f.Detail = err.Error()
	}
	return f
}

func probeForeign() Feature {
	f := Feature{
		Name:   "see mappings of every process",
		Cost:   "processes that already run when recording starts, and may not be looked at, have no identities",
		Remedy: "run as root or with CAP_SYS_PTRACE, outside of sandboxes",
	}
	pids, err := processes()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	seen, refused := 0, 0
	for _, pid := range pids {
		p, err := procmap.Open(pid)
		switch {
		case err == nil:
			p.Close()
			seen++
		case errors.Is(err, fs.ErrPermission):
			refused++
		}
	}
	f.Answer = Yes
	if refused > 0 {
		f.Answer = No
	}
	f.Detail = fmt.Sprintf("%d of %d", seen, seen+refused)
	return f
}

func probeMapFiles() Feature {
	f := Feature{
		Name:   "open mapped files directly",
		Cost:   "deleted files, and some on overlays, cannot be opened: no identity unless the kernel tells it, and no symbols",
		Remedy: "run as root or with CAP_CHECKPOINT_RESTORE",
	}
	links, err := os.ReadDir("/proc/self/map_files")
	if err != nil || len(links) == 0 {
		f.Answer = No
		return f
	}
	file, err := os.Open(filepath.Join("/proc/self/map_files", links[0].Name()))
	f.Answer, f.Detail = answer(err)
	if err == nil {
		file.Close()
	}
	return f
}

func probeKallsyms() Feature {
	f := Feature{
		Name:   "kernel symbols",
		Cost:   "kernel code has neither identity nor names",
		Remedy: "run as root, with sysctl kernel.kptr_restrict=1 or 0",
	}
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		f.Answer, f.Detail = No, err.Error()
		return f
	}
	defer file.Close()
	var address uint64
	if _, err := fmt.Fscanf(file, "%x", &address); err != nil {
		f.Detail = err.Error()
		return f
	}
	f.Answer = Yes
	if address == 0 {
		f.Answer = No
	}
	if b, err := os.ReadFile("/proc/sys/kernel/kptr_restrict"); err == nil {
		f.Detail = "kernel.kptr_restrict is " + strings.TrimSpace(string(b))
	}
	return f
}

func probeKernelID() Feature {
	f := Feature{
		Name:   "identity of the kernel",
		Cost:   "kernel code has no identity",
		Remedy: "mount sysfs at /sys",
	}
	info, err := buildid.ReadKernel()
	if err != nil {
		f.Answer, f.Detail = No, err.Error()
		return f
	}
	f.Answer, f.Detail = Yes, info.ID.String()
	return f
}

func probeDebugFiles() Feature {
	f := Feature{
		Name:   "debug files",
		Answer: No,
		Cost:   "stripped files show only the names that they export",
		Remedy: "install debug packages (Debian: NAME-dbgsym, libc6-dbg)",
	}
	for _, dir := range debuginfo.DefaultDirs {
		if dirs, err := os.ReadDir(filepath.Join(dir, ".build-id")); err == nil && len(dirs) > 0 {
			f.Answer, f.Detail = Yes, filepath.Join(dir, ".build-id")
		}
	}
	return f
}

func probeBPF() Feature {
	f := Feature{
		Name:   "sampling by BPF programs",
		Cost:   "no --backend bpf",
		Remedy: "run as root outside of containers, on Linux 6.1 or later with CONFIG_DEBUG_INFO_BTF",
	}
	f.Answer, f.Detail = answer(tryBPF())
	return f
}

func probeTaskWork() Feature {
	f := Feature{
		Name:   "BPF programs in the sampled task",
		Answer: No,
		Cost:   "the backend bpf identifies files by opening them, so those of processes that exit at once may be missed",
		Remedy: "Linux 6.18",
	}
	if bpf.HasTaskWork() {
		f.Answer = Yes
	}
	return f
}
