// Package perfregs knows how the kernel numbers the registers that perf's samples have, which
// is not as DWARF does.
package perfregs

import (
	"cmp"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/unwind"
)

// A Machine says how the kernel numbers its registers: arch/*/include/uapi/asm/perf_regs.h.
type Machine struct {
	Machine unwind.Machine
	// numbers are the kernel's, by DWARF's.
	numbers []uint8
	ip      uint8
	// hidden are the registers that samples taken in the kernel do not have:
	// the kernel fills them with ones.
	hidden []unwind.Register
}

// machines are the machines whose stacks can be unwound, by Go's names.
var machines = map[string]*Machine{
	"amd64": {
		Machine: unwind.X86_64,
		numbers: []uint8{0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
		ip:      8,
		hidden:  []unwind.Register{unwind.RBX, unwind.R12, unwind.R13, unwind.R14, unwind.R15},
	},
	"arm64": {
		Machine: unwind.ARM64,
		numbers: []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
		ip:      32,
	},
}

// names are what uname(2) calls the machines, by Go's names.
var names = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// Of returns what is known of a machine, by Go's name or by that of uname(2): nil when its
// stacks cannot be unwound.
func Of(name string) *Machine { return machines[cmp.Or(names[name], name)] }

// Mask returns the bits of all registers, for perf_event_attr.sample_regs_user.
func (m *Machine) Mask() uint64 {
	mask := uint64(1) << m.ip
	for _, n := range m.numbers {
		mask |= 1 << n
	}
	return mask
}

// IP returns the instruction pointer of user code, of 32-bit code as well.
func (m *Machine) IP(r *perfdata.Sample) (addr.Abs, bool) {
	ip, ok := r.UserRegs.Get(int(m.ip))
	return addr.Abs(ip), ok
}

// State returns where user code stood in a sample. When it has no registers, or not all
// that are needed, it reports false.
func (m *Machine) State(r *perfdata.Sample) (unwind.State, bool) {
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
	if r.Mode() != perfdata.ModeUser {
		for _, n := range m.hidden {
			if s.Values[n] == ^uint64(0) {
				s.Lose(n)
			}
		}
	}
	return s, true
}
