package capture

import (
	"runtime"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/unwind"
)

// perfMachine says how the kernel numbers the registers that samples have:
// arch/*/include/uapi/asm/perf_regs.h.
type perfMachine struct {
	machine unwind.Machine
	// numbers are the kernel's, by DWARF's.
	numbers []uint8
	ip      uint8
	// hidden are the registers that samples taken in the kernel do not have:
	// the kernel fills them with ones.
	hidden []unwind.Register
}

// perfMachines are the machines whose stacks can be unwound, by Go's names.
var perfMachines = map[string]*perfMachine{
	"amd64": {
		machine: unwind.X86_64,
		numbers: []uint8{0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
		ip:      8,
		hidden:  []unwind.Register{unwind.RBX, unwind.R12, unwind.R13, unwind.R14, unwind.R15},
	},
	"arm64": {
		machine: unwind.ARM64,
		numbers: []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
		ip:      32,
	},
}

// thisMachine returns what is known of the machine that this program runs on, nil when
// its stacks cannot be unwound.
func thisMachine() *perfMachine { return perfMachines[runtime.GOARCH] }

// mask returns the bits of all registers, for perf_event_attr.sample_regs_user.
func (m *perfMachine) mask() uint64 {
	mask := uint64(1) << m.ip
	for _, n := range m.numbers {
		mask |= 1 << n
	}
	return mask
}

// Modes of the processor, the lowest bits of perf_event_header.misc: PERF_RECORD_MISC_*.
const (
	miscModeMask = 7
	miscUser     = 2
)

// state returns where user code stood in a sample. When it has no registers, or not all
// that are needed, it reports false.
func (m *perfMachine) state(r *perfdata.Sample) (unwind.State, bool) {
	s := unwind.State{Exact: true, Method: unwind.ByRegs}
	ip, ok := r.UserRegs.Get(int(m.ip))
	if r.UserRegs.ABI != perfdata.Regs64 || !ok {
		return s, false
	}
	s.IP = addr.Abs(ip)
	for n, theirs := range m.numbers {
		if v, ok := r.UserRegs.Get(int(theirs)); ok {
			s.Set(unwind.Register(n), v)
		}
	}
	if r.Misc&miscModeMask != miscUser {
		for _, n := range m.hidden {
			if s.Values[n] == ^uint64(0) {
				s.Lose(n)
			}
		}
	}
	return s, true
}
