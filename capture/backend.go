package capture

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
)

// Backend is a way of taking samples.
type Backend uint8

// The backends.
const (
	// Auto takes what this machine does best.
	Auto Backend = iota
	// Perf takes samples with perf events, and learns of mappings from their records.
	Perf
	// BPF finds file and offset of every frame inside the kernel. It needs root.
	BPF
)

var backendNames = [...]string{Auto: "auto", Perf: "perf", BPF: "bpf"}

// String returns "auto", "perf" or "bpf".
func (b Backend) String() string { return backendNames[b] }

// ParseBackend returns the backend of this name.
func ParseBackend(name string) (Backend, error) {
	for b, n := range backendNames {
		if n == name {
			return Backend(b), nil
		}
	}
	return 0, fmt.Errorf("unknown backend %q: there are auto, perf and bpf", name)
}

// resolve turns Auto into a backend, and says why that one.
func (b Backend) resolve() (Backend, string) {
	if b != Auto {
		return b, "demanded"
	}
	return Perf, "it needs perf_event_open and nothing else; 'record --backend bpf' identifies files in the kernel itself"
}

// DefaultBackend returns the way of recording that is taken where none is
// demanded, and why.
func DefaultBackend() (Backend, string) { return Auto.resolve() }

// errPIDNamespace says that BPF's process numbers mean nothing here.
var errPIDNamespace = errors.New("this is not the PID namespace of the machine, whose process numbers BPF tells")

// initPIDNamespace is what the link reads in it: PROC_PID_INIT_INO of
// include/linux/proc_ns.h.
const initPIDNamespace = "pid:[4026531836]"

// tryBPF loads the programs and lets them go again.
func tryBPF() error {
	if err := checkPIDNamespace(); err != nil {
		return err
	}
	s, err := bpf.NewSampler(bpf.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

func checkPIDNamespace() error {
	if link, err := os.Readlink("/proc/self/ns/pid"); err != nil || link != initPIDNamespace {
		return errPIDNamespace
	}
	return nil
}

// bpfError says what it means to the user that the programs cannot be loaded.
func bpfError(err error) error {
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return fmt.Errorf("the backend bpf needs root: %w; 'record --backend perf' does not", err)
	}
	return fmt.Errorf("the backend bpf does not work here: %w; use 'record --backend perf'", err)
}
