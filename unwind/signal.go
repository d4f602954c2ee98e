package unwind

import "hallmark/addr"

// signalFrame is where registers lie in the frame that the kernel makes for a handler.
type signalFrame struct {
	registers []savedRegister
	ip        uint64
}

type savedRegister struct {
	number Register
	offset uint8 // bytes / 8
}

// The kernel's struct sigcontext in its struct rt_sigframe: arch/*/include/uapi/asm/sigcontext.h,
// arch/*/kernel/signal.c. The offsets are from the stack pointer where the handler returns to.
var (
	signalX86   = x86SignalFrame()
	signalARM64 = arm64SignalFrame()
)

// x86SignalFrame: struct rt_sigframe has the handler's return address, which is popped by
// then, a struct ucontext, and in that at 40 the registers: r8 to r15, then these.
func x86SignalFrame() signalFrame {
	const first = 40 / 8
	order := [...]Register{8, 9, 10, 11, R12, R13, R14, R15, 5, 4, RBP, RBX, 1, 0, 2, RSP}
	f := signalFrame{ip: 168}
	for i, n := range order {
		f.registers = append(f.registers, savedRegister{n, uint8(first + i)})
	}
	return f
}

// arm64SignalFrame: struct rt_sigframe has a struct siginfo of 128 bytes and a struct
// ucontext, and in that at 176 a fault address and x0 to x30, sp, pc.
func arm64SignalFrame() signalFrame {
	const first = (128 + 176 + 8) / 8
	f := signalFrame{ip: 8 * (first + 32)}
	for n := range Register(32) {
		f.registers = append(f.registers, savedRegister{n, uint8(first + n)})
	}
	return f
}

func (m Machine) signalFrame() *signalFrame {
	if m == ARM64 {
		return &signalARM64
	}
	return &signalX86
}

// stepSignal goes to what a signal interrupted, all of whose registers the kernel saved.
// Its stack may be another one.
func (s *State) stepSignal(m Machine, r *Rule, mem Memory) (End, bool) {
	sp, known := s.Get(m.StackPointer())
	if !known {
		return RegisterLost, true
	}
	base := sp + uint64(int64(r.Offset))
	f := m.signalFrame()
	ip, ok := mem.ReadWord(addr.Abs(base + f.ip))
	if !ok {
		return Unreadable, true
	}
	var regs Registers
	for _, saved := range f.registers {
		v, ok := mem.ReadWord(addr.Abs(base + 8*uint64(saved.offset)))
		if !ok {
			return Unreadable, true
		}
		regs.Set(saved.number, v)
	}
	*s = State{IP: addr.Abs(ip), Exact: true, Method: BySignal, Registers: regs, bits: s.bits}
	if ip == 0 {
		return NotMapped, true // it called a null pointer: the caller is not known
	}
	return EndUnknown, false
}
