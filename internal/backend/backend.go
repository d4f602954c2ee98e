// Package backend has the ways of taking samples and learning of executions by name. It tries
// whether one of them can be used here, and says why not.
package backend

import "fmt"

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

var names = [...]string{Auto: "auto", Perf: "perf", BPF: "bpf", Stackmap: "stackmap"}

// String returns "auto", "perf", "bpf" or "stackmap".
func (b Backend) String() string { return names[b] }

// Parse returns the backend of this name.
func Parse(name string) (Backend, error) {
	for b, n := range names {
		if n == name {
			return Backend(b), nil
		}
	}
	return 0, fmt.Errorf("unknown backend %q: there are auto, perf, bpf and stackmap", name)
}
