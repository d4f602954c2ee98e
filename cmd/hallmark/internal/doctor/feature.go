// Package doctor looks at what this machine has for Hallmark: which features work for this user, what
// keeping build IDs in the kernel would cost here, and what the ways of knowing the file of a frame
// cost and find.
package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/perfregs"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/procmap"
)

// Answer is what a probe found: yes, no, or that it could not find out.
type Answer uint8

// The answers of a probe.
const (
	Unknown Answer = iota // the probe could not find out
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
	Cost   string `json:"loss,omitempty"`   // what is lost without it
	Remedy string `json:"remedy,omitempty"` // how to get it
}

// Features tries everything that recording depends on.
func Features() []Feature {
	found := make([]Feature, len(probes))
	for i, p := range probes {
		found[i] = Feature{Name: p.name, Cost: p.cost, Remedy: p.remedy}
		found[i].Answer, found[i].Detail = p.probe()
	}
	return found
}

// probes are all features, the one that everything needs first.
var probes = []struct {
	name, cost, remedy string
	probe              func() (Answer, string)
}{
	{
		"record own processes",
		"nothing can be recorded",
		"sysctl kernel.perf_event_paranoid=2, and let the sandbox pass perf_event_open",
		probeOwn,
	},
	{
		"record kernel code",
		"stacks end where the kernel begins",
		"run with CAP_PERFMON, as root has it, or sysctl kernel.perf_event_paranoid=1",
		func() (Answer, string) {
			return probeEvent(false, func(a *unix.PerfEventAttr) { a.Bits &^= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv })
		},
	},
	{
		"record every process (-a)",
		"only own processes can be recorded",
		"run with CAP_PERFMON, as root has it, or sysctl kernel.perf_event_paranoid=0",
		func() (Answer, string) { return probeEvent(true, func(*unix.PerfEventAttr) {}) },
	},
	{
		"sampling by BPF programs",
		"the backend perf is used: it identifies files by the kernel's records and by opening them, so some of processes that exit at once are missed, and it costs more where many processes start",
		"run with CAP_BPF and CAP_PERFMON, as root has them, outside of containers, on Linux 6.1 or later with CONFIG_DEBUG_INFO_BTF",
		probeBPF,
	},
	{
		"BPF programs in the sampled task",
		"the backend bpf identifies files by opening them, so some of processes that exit at once are missed",
		"Linux 6.18",
		probeTaskWork,
	},
	{
		"callers in code without frame pointers",
		"stacks of the backend bpf end where code keeps no frame pointers, as most of what distributions build; the backend perf finds them by copies of stacks, at a higher cost",
		"run with CAP_BPF and CAP_PERFMON, as root has them, outside of containers, on x86-64 or arm64 with Linux 6.1 or later",
		probeUnwinding,
	},
	{
		"sampling by the kernel's map of stacks",
		"no --backend stackmap, to compare with",
		"run with CAP_BPF and CAP_PERFMON, as root has them, outside of containers, on Linux 5.10 or later with CONFIG_DEBUG_INFO_BTF",
		func() (Answer, string) { return usable(backend.TryStackmap()) },
	},
	{
		"build IDs in mapping records",
		"the backend perf identifies files by opening them, so some of processes that exit at once are missed",
		"Linux 5.12",
		func() (Answer, string) {
			return probeEvent(false, func(a *unix.PerfEventAttr) { a.Bits |= perfring.BitBuildID })
		},
	},
	{
		"cgroup of each sample",
		"samples of the backend perf do not have their cgroup and container",
		"Linux 5.7 with CONFIG_CGROUP_PERF",
		func() (Answer, string) {
			return probeEvent(false, func(a *unix.PerfEventAttr) {
				a.Bits |= perfring.BitCgroup
				a.Sample_type |= unix.PERF_SAMPLE_CGROUP
			})
		},
	},
	{
		"hardware cycle counter",
		"no --event cycles; kernel code that runs with interrupts off is seen late by cpu-clock",
		"a machine, or a virtual machine, with a performance monitoring unit",
		func() (Answer, string) {
			return probeEvent(false, func(a *unix.PerfEventAttr) {
				a.Type, a.Config = unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES
			})
		},
	},
	{
		"query mappings by address",
		"the text of /proc/PID/maps is read instead, which is slower",
		"Linux 6.11",
		probeQuery,
	},
	{
		"see mappings of every process",
		"processes that already run when recording starts, and may not be looked at, have no identities",
		"run with CAP_SYS_PTRACE, as root has it, outside of sandboxes",
		probeForeign,
	},
	{
		"open mapped files directly",
		"deleted files, and some on overlays, cannot be opened: no identity unless the kernel reports it, and no symbols",
		"run with CAP_CHECKPOINT_RESTORE, as root has it",
		probeMapFiles,
	},
	{
		"kernel symbols",
		"kernel code has neither identity nor names",
		"run with CAP_SYSLOG, as root has it, and sysctl kernel.kptr_restrict=1 or 0",
		probeKallsyms,
	},
	{
		"identity of the kernel",
		"kernel code has no identity",
		"mount sysfs at /sys",
		probeKernelID,
	},
	{
		"debug files",
		"stripped files show only the names that they export",
		"set DEBUGINFOD_URLS (Debian: https://debuginfod.debian.net), or install debug packages (Debian: PACKAGE-dbgsym, libc6-dbg)",
		probeDebugFiles,
	},
}

// probeEvent tries a clock event of user code with a change, of this thread or
// of everybody.
func probeEvent(everybody bool, change func(*unix.PerfEventAttr)) (Answer, string) {
	return answer(perfring.Try(everybody, change))
}

// answer says what an attempt to open an event shows: refusals are a no, running
// out of descriptors for instance says nothing.
func answer(err error) (Answer, string) {
	switch {
	case err == nil:
		return Yes, ""
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EBUSY):
		return Unknown, err.Error()
	}
	return No, err.Error()
}

func probeOwn() (Answer, string) {
	a, detail := probeEvent(false, func(*unix.PerfEventAttr) {})
	if detail == "" {
		detail = "kernel.perf_event_paranoid is " + perfring.ParanoidLevel()
	}
	return a, detail
}

func probeBPF() (Answer, string) {
	detail, err := backend.TryBPF()
	if err == nil {
		return Yes, detail
	}
	return usable(err)
}

func probeUnwinding() (Answer, string) {
	detail, err := backend.TryUnwinding()
	if err == nil {
		return Yes, detail
	}
	a, why := usable(err)
	if own, _ := probeOwn(); a == No && own == Yes && perfregs.Of(runtime.GOARCH) != nil {
		why = "not by bpf (" + why + "), but by copies of stacks with the backend perf"
	}
	return a, why
}

// usable is the answer to a try of a backend.
func usable(err error) (Answer, string) {
	if err == nil {
		return Yes, ""
	}
	a, _ := answer(err)
	return a, backend.WhyNot(err)
}

func probeTaskWork() (Answer, string) {
	if bpf.HasTaskWork() {
		return Yes, ""
	}
	return No, ""
}

func probeQuery() (Answer, string) {
	p, err := procmap.OpenOptions(os.Getpid(), procmap.Options{Method: procmap.Query})
	switch {
	case err == nil:
		p.Close()
		return Yes, "PROCMAP_QUERY"
	case errors.Is(err, errors.ErrUnsupported):
		return No, ""
	}
	return Unknown, err.Error()
}

func probeForeign() (Answer, string) {
	pids, err := procfs.Processes()
	if err != nil {
		return Unknown, err.Error()
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
	detail := fmt.Sprintf("%d of %d", seen, seen+refused)
	if refused > 0 {
		return No, detail
	}
	return Yes, detail
}

func probeMapFiles() (Answer, string) {
	links, err := os.ReadDir("/proc/self/map_files")
	if err != nil || len(links) == 0 {
		return No, ""
	}
	file, err := os.Open(filepath.Join("/proc/self/map_files", links[0].Name()))
	if err == nil {
		file.Close()
	}
	return answer(err)
}

func probeKallsyms() (Answer, string) {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return No, err.Error()
	}
	defer file.Close()
	shown, err := showsAddresses(file)
	if err != nil {
		return Unknown, err.Error()
	}
	detail := ""
	if b, err := os.ReadFile("/proc/sys/kernel/kptr_restrict"); err == nil {
		detail = "kernel.kptr_restrict is " + strings.TrimSpace(string(b))
	}
	if !shown && strings.HasSuffix(detail, " 0") {
		// 0 shows them to whoever may record the kernel (kallsyms_show_value).
		return No, "this user may neither record the kernel nor read its log (CAP_SYSLOG)"
	}
	if !shown {
		return No, detail
	}
	return Yes, detail
}

// showsAddresses reports whether any symbol of kallsyms has another address than
// zero. The first ones are at zero indeed where variables of each CPU are (before 6.15).
func showsAddresses(kallsyms io.Reader) (bool, error) {
	lines := bufio.NewScanner(kallsyms)
	for lines.Scan() {
		if address, _, _ := strings.Cut(lines.Text(), " "); strings.Trim(address, "0") != "" {
			return true, nil
		}
	}
	return false, lines.Err()
}

func probeKernelID() (Answer, string) {
	info, err := buildid.ReadKernel()
	if err != nil {
		return No, err.Error()
	}
	return Yes, info.ID.String()
}

func probeDebugFiles() (Answer, string) {
	for _, dir := range debuginfo.DefaultDirs {
		ids := filepath.Join(dir, ".build-id")
		if dirs, err := os.ReadDir(ids); err == nil && len(dirs) > 0 {
			return Yes, ids
		}
	}
	return No, ""
}
