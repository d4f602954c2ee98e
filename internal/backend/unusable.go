package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/internal/capability"
	"hallmark/internal/procfs"
)

// An Error says why the programs of a backend cannot be used, and the way out.
type Error struct {
	backend     Backend
	why, remedy string
	err         error
}

// Error returns the backend, the reason and the remedy.
func (e *Error) Error() string {
	return fmt.Sprintf("the backend %v %s; %s", e.backend, e.why, e.remedy)
}

// Unwrap returns the error of the kernel.
func (e *Error) Unwrap() error { return e.err }

// WhyNot returns the text of an error of [Unusable] without the way out.
func WhyNot(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%v %s", e.backend, e.why)
	}
	return err.Error()
}

// obstacles are what may be in the way of the programs, the most specific first.
var obstacles = []struct {
	found       func(error) bool
	why, remedy string
}{
	{
		IsShortage, "ran out of open files", "raise 'ulimit -n'",
	},
	{
		func(err error) bool { return errors.Is(err, procfs.ErrPIDNamespace) },
		"reports the machine's process numbers, which this container counts otherwise", "run it outside, or in a container with the PID namespace of the host (--pid=host)",
	},
	{
		func(err error) bool { return IsRefusal(err) && capability.LackingForBPF() != "" },
		"needs CAP_BPF and CAP_PERFMON", "run as root, or with these capabilities",
	},
	{
		func(err error) bool { return IsRefusal(err) && !ownsMachine() },
		"needs capabilities of the machine, and these are of a user namespace", "run as root outside of it",
	},
	{
		func(error) bool { return lockedDown() },
		"reads kernel memory, which this kernel forbids (lockdown=confidentiality)", "boot without it",
	},
	{
		func(err error) bool { return IsRefusal(err) },
		"is refused by a sandbox", "let it pass bpf(2) and give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
	},
	{
		func(error) bool { return !describesItself() },
		"needs a kernel that describes its types, and there is no " + kernelTypes, "take one with CONFIG_DEBUG_INFO_BTF",
	},
}

// Unusable returns an [Error] that says what it means to the user that the programs of a backend
// cannot be loaded.
func Unusable(b Backend, err error) error {
	for _, o := range obstacles {
		if o.found(err) {
			return &Error{b, o.why + lackText(err), o.remedy, err}
		}
	}
	return &Error{b, fmt.Sprintf("does not load on this kernel (%v)", err), "take Linux 6.1 or later", err}
}

// lackText names the capabilities that are lacking where that is what an error comes from.
func lackText(err error) string {
	lacking := capability.LackingForBPF()
	if lacking == "" || !IsRefusal(err) {
		return ""
	}
	return ", and this process lacks " + lacking
}

// IsShortage reports whether this process, or the machine, has no room for more open files.
func IsShortage(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// IsRefusal reports whether the kernel, or a sandbox, denies this process what it asked for.
func IsRefusal(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

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
