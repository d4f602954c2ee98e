package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/internal/capability"
	"hallmark/internal/perfregs"
	"hallmark/internal/procfs"
)

// Backend is a way of taking samples.
type Backend uint8

// The backends.
const (
	// Auto takes BPF where that works, else Perf.
	Auto Backend = iota
	// Perf takes samples with perf events, and learns of mappings from their records.
	Perf
	// BPF finds file and offset of every frame inside the kernel. It needs CAP_BPF and
	// CAP_PERFMON, which root has.
	BPF
	// Stackmap takes samples by the kernel's own map of stacks with build IDs. It needs
	// what BPF needs, and is for comparison and for kernels that do not take BPF.
	Stackmap
)

var backendNames = [...]string{Auto: "auto", Perf: "perf", BPF: "bpf", Stackmap: "stackmap"}

// String returns "auto", "perf", "bpf" or "stackmap".
func (b Backend) String() string { return backendNames[b] }

// ParseBackend returns the backend of this name.
func ParseBackend(name string) (Backend, error) {
	for b, n := range backendNames {
		if n == name {
			return Backend(b), nil
		}
	}
	return 0, fmt.Errorf("unknown backend %q: there are auto, perf, bpf and stackmap", name)
}

// DefaultBackend returns the way of recording that is taken where none is
// demanded, and why.
func DefaultBackend() (Backend, string) {
	if _, err := tryBPF(); err != nil {
		return Perf, whyNot(err)
	}
	return BPF, "the file of every frame is found inside the kernel, also for processes that exit at once"
}

// newSampler makes the sampler of the backend that is demanded, and of the best
// that works where none is.
func (s *Session) newSampler() error {
	switch s.opts.Backend {
	case Perf:
		return s.usePerf()
	case BPF:
		return orPerf(s.useBPF())
	case Stackmap:
		return orPerf(s.useStackmap())
	}
	err := s.useBPF()
	if err == nil || isShortage(err) { // perf would run out of files as well, later and in silence
		return err
	}
	if perfErr := s.usePerf(); perfErr != nil {
		return perfErr
	}
	if capability.LackingForBPF() == "" { // others know that they are ordinary users
		s.tally.stats.Reduced = append(s.tally.stats.Reduced, "BPF programs: "+whyNot(err))
	}
	return nil
}

// orPerf adds the way out that there always is.
func orPerf(err error) error {
	var e *unusableError
	if errors.As(err, &e) {
		return fmt.Errorf("%w, or use 'record --backend perf'", err)
	}
	return err
}

func (s *Session) usePerf() error {
	if s.opts.CallGraph.By == AutoCallGraph && perfregs.Of(runtime.GOARCH) != nil {
		s.opts.CallGraph.By = ByDWARF // frame pointers find no callers of most code in C
	}
	sampler, err := newPerfSampler(s.newTally(Perf, procfs.CgroupRoots), s.opts)
	if n := s.opts.TableEntries; n != 0 && n != DefaultTableEntries {
		s.tally.stats.Reduced = append(s.tally.stats.Reduced, "a table of files, which only the backend bpf has")
	}
	if err == nil {
		s.sampler = sampler
	}
	return err
}

func (s *Session) useBPF() error {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return unusable(BPF, err)
	}
	programs, reduced, err := s.newPrograms()
	if err != nil {
		return unusable(BPF, err)
	}
	sampler, err := newBPFSampler(s.newTally(BPF, procfs.UnifiedRoots), s.opts, programs)
	if err != nil {
		s.stopTables()
		s.tally.objects.close()
		return err
	}
	s.tally.stats.Reduced = reduced
	s.sampler = sampler
	return nil
}

// newPrograms loads the programs, without the part that unwinds where that does not load
// and nobody demands it.
func (s *Session) newPrograms() (programs *bpf.Sampler, reduced []string, err error) {
	o := bpf.Options{
		NoTaskWork:   s.opts.noTaskWork,
		Times:        s.opts.Timeline,
		Follow:       !s.opts.SystemWide,
		Entries:      s.opts.TableEntries,
		Running:      s.opts.Command == nil,
		Unwind:       s.opts.CallGraph.By != ByFP && machines[runtime.GOARCH] != 0,
		UnwindMemory: s.opts.UnwindMemory,
		CopyAll:      s.opts.copyAll,
	}
	if programs, err = bpf.NewSampler(o); err == nil || !o.Unwind || s.opts.CallGraph.By == ByDWARF {
		return programs, nil, err
	}
	o.Unwind = false
	programs, withoutErr := bpf.NewSampler(o)
	if withoutErr != nil {
		return nil, nil, err
	}
	return programs, []string{fmt.Sprintf("callers in code without frame pointers (%v)", err)}, nil
}

func (s *Session) useStackmap() error {
	if s.opts.CallGraph.By == ByDWARF {
		return errors.New("the backend stackmap knows frame pointers only: use --call-graph fp, or the backend bpf or perf")
	}
	if err := procfs.CheckPIDNamespace(); err != nil {
		return unusable(Stackmap, err)
	}
	stacks := stackPlaces(s.opts.Frequency, runtime.NumCPU())
	programs, err := bpf.NewStackmap(bpf.StackmapOptions{Follow: !s.opts.SystemWide, Stacks: stacks, Times: s.opts.Timeline})
	if err != nil {
		return unusable(Stackmap, err)
	}
	sampler, err := newStackmapSampler(s.newTally(Stackmap, procfs.UnifiedRoots), s.opts, programs)
	if err != nil {
		s.tally.objects.close()
		return err
	}
	s.sampler = sampler
	return nil
}

// tryBPF loads the programs and lets them go again. It returns what they take.
func tryBPF() (string, error) {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return "", unusable(BPF, err)
	}
	s, err := bpf.NewSampler(bpf.Options{})
	if err != nil {
		return "", unusable(BPF, err)
	}
	detail, err := describeTable(s)
	return detail, errors.Join(err, s.Close())
}

// tryUnwinding does the same with the programs that find callers by unwind tables, and has
// them take a table.
func tryUnwinding() (string, error) {
	if machines[runtime.GOARCH] == 0 {
		return "", fmt.Errorf("stacks of %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	if err := procfs.CheckPIDNamespace(); err != nil {
		return "", unusable(BPF, err)
	}
	s, err := bpf.NewSampler(bpf.Options{Unwind: true})
	if err != nil {
		return "", unusable(BPF, err)
	}
	defer s.Close()
	vdso, err := buildVDSO()
	if err == nil {
		err = s.Tables().Put(bpf.VDSOSerial, vdso)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("unwind tables take up to %d MiB in the kernel", s.Tables().Stats().Capacity>>20), nil
}

// tryStackmap does the same with the programs of Stackmap.
func tryStackmap() error {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return unusable(Stackmap, err)
	}
	s, err := bpf.NewStackmap(bpf.StackmapOptions{Stacks: 64}) // little memory
	if err != nil {
		return unusable(Stackmap, err)
	}
	return s.Close()
}

// unusableError says why the programs of a backend cannot be used, and the way out.
type unusableError struct {
	backend     Backend
	why, remedy string
	err         error
}

// Error tells all of it.
func (e *unusableError) Error() string {
	return fmt.Sprintf("the backend %v %s; %s", e.backend, e.why, e.remedy)
}

func (e *unusableError) Unwrap() error { return e.err }

// whyNot is the text of an error of unusable without the way out.
func whyNot(err error) string {
	var e *unusableError
	if errors.As(err, &e) {
		return fmt.Sprintf("%v %s", e.backend, e.why)
	}
	return err.Error()
}

// obstacles are what may be in the way of the programs, the most telling first.
var obstacles = []struct {
	found       func(error) bool
	why, remedy string
}{
	{
		isShortage, "ran out of open files", "raise 'ulimit -n'",
	},
	{
		func(err error) bool { return errors.Is(err, procfs.ErrPIDNamespace) },
		"tells the machine's process numbers, which this container counts otherwise", "run it outside, or in a container with the PID namespace of the host (--pid=host)",
	},
	{
		func(err error) bool { return isRefusal(err) && capability.LackingForBPF() != "" },
		"needs CAP_BPF and CAP_PERFMON", "run as root, or with these capabilities",
	},
	{
		func(err error) bool { return isRefusal(err) && !ownsMachine() },
		"needs capabilities of the machine, and these are of a user namespace", "run as root outside of it",
	},
	{
		func(error) bool { return lockedDown() },
		"reads kernel memory, which this kernel forbids (lockdown=confidentiality)", "boot without it",
	},
	{
		func(err error) bool { return isRefusal(err) },
		"is refused by a sandbox", "let it pass bpf(2) and give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
	},
	{
		func(error) bool { return !describesItself() },
		"needs a kernel that describes its types, and there is no " + kernelTypes, "take one with CONFIG_DEBUG_INFO_BTF",
	},
}

// unusable says what it means to the user that the programs of a backend cannot be
// loaded.
func unusable(b Backend, err error) error {
	for _, o := range obstacles {
		if o.found(err) {
			return &unusableError{b, o.why + lackText(err), o.remedy, err}
		}
	}
	return &unusableError{b, fmt.Sprintf("does not load on this kernel (%v)", err), "take Linux 6.1 or later", err}
}

// lackText names the capabilities that are lacking where that is what an error comes from.
func lackText(err error) string {
	lacking := capability.LackingForBPF()
	if lacking == "" || !isRefusal(err) {
		return ""
	}
	return ", and this process lacks " + lacking
}

// isShortage reports whether this process, or the machine, has no room for more open files.
func isShortage(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

func isRefusal(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// ownsMachine reports whether this process is in the first user namespace, where
// every number stands for itself: user_namespaces(7).
func ownsMachine() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}

// lockedDown reports whether the kernel keeps its memory to itself:
// kernel_lockdown(7).
func lockedDown() bool {
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(string(b), "[confidentiality]")
}

const kernelTypes = "/sys/kernel/btf/vmlinux"

func describesItself() bool {
	_, err := os.Stat(kernelTypes)
	return !errors.Is(err, fs.ErrNotExist)
}
