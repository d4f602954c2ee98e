package unwind

import (
	"fmt"
	"strings"
)

// MachineOf returns the machine of a GOARCH, zero for one whose code cannot be unwound.
func MachineOf(goarch string) Machine {
	switch goarch {
	case "amd64":
		return X86_64
	case "arm64":
		return ARM64
	}
	return 0
}

// String returns "x86-64" or "arm64".
func (m Machine) String() string {
	switch m {
	case X86_64:
		return "x86-64"
	case ARM64:
		return "arm64"
	}
	return fmt.Sprintf("machine %d", uint8(m))
}

var x86Names = [...]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// Name returns what assemblers call a register of the machine.
func (m Machine) Name(r Register) string {
	switch {
	case m == X86_64 && int(r) < len(x86Names):
		return x86Names[r]
	case m == ARM64 && r == SP:
		return "sp"
	case m == ARM64 && r < SP:
		return fmt.Sprintf("x%d", r)
	}
	return fmt.Sprintf("register %d", r)
}

var kindNames = [...]string{"none", "outermost", "register", "dereference", "plt", "signal", "frame-pointer", "goroutine"}

// String returns a word for the kind.
func (k Kind) String() string { return nameOf(kindNames[:], int(k), "kind") }

var silenceNames = [...]string{"gap", "expression", "unusual", "damaged"}

// String returns a word for the reason.
func (s Silence) String() string { return nameOf(silenceNames[:], int(s), "reason") }

var sourceNames = [...]string{"-", ".eh_frame", ".debug_frame", "pclntab", "plt", "known"}

// String returns the name of the section that the source is, or a word for it.
func (s Source) String() string { return nameOf(sourceNames[:], int(s), "source") }

func nameOf(names []string, n int, what string) string {
	if n < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s %d", what, n)
}

// CFA returns for people how a rule finds the canonical frame address: "rsp+16". Where
// there is none it returns why.
func (r *Rule) CFA(m Machine) string {
	at := fmt.Sprintf("%s%+d", m.Name(r.Register), r.Offset)
	switch r.Kind {
	case None:
		return "none: " + r.Silence().String()
	case Outermost, FP:
		return r.Kind.String()
	case Deref:
		if r.Addend != 0 {
			return fmt.Sprintf("[%s]%+d", at, 8*int(r.Addend))
		}
		return "[" + at + "]"
	case PLT:
		return fmt.Sprintf("rsp+8, +16 from byte %d on", r.Offset)
	case Signal:
		return "signal frame at " + at
	case Goroutine:
		return fmt.Sprintf("goroutine of %s, by m at %d and curg at %d", m.Name(r.Register), 8*int(r.Saved[0]), r.Offset)
	}
	return at
}

// Describe returns for people where a rule finds the return address and the registers of
// the caller: "ra c-8 rbx c-24 rbp lost". c is the canonical frame address. Registers
// that are unchanged are left out.
func (r *Rule) Describe(m Machine) string {
	if r.Kind != Reg && r.Kind != Deref && r.Kind != PLT {
		return ""
	}
	var b strings.Builder
	if r.RA == Same {
		b.WriteString("ra " + m.Name(r.Link))
	} else {
		fmt.Fprintf(&b, "ra c%+d", 8*int(r.RA))
	}
	base := "c"
	if r.Flags&SavedAtRegister != 0 {
		base = m.Name(r.Register)
	}
	if r.Flags&SavedAtFramePointer != 0 {
		base = m.Name(m.FramePointer())
	}
	for i, reg := range m.Saved() {
		switch n := r.Saved[i]; n {
		case Same:
		case Unknown:
			b.WriteString(" " + m.Name(reg) + " lost")
		default:
			fmt.Fprintf(&b, " %s %s%+d", m.Name(reg), base, 8*int(n))
		}
	}
	return b.String()
}
