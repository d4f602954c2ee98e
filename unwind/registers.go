package unwind

// Registers are the general registers of a frame, by their DWARF numbers, the stack
// pointer among them. The instruction pointer is not one of them: see State.
type Registers struct {
	Values [32]uint64
	Known  uint32 // a bit for each: the values of the others mean nothing
}

// Get returns the value of a register, and whether it is known.
func (r *Registers) Get(n Register) (uint64, bool) {
	if n >= 32 || r.Known&(1<<n) == 0 {
		return 0, false
	}
	return r.Values[n], true
}

// Set gives a register, of a number below 32, a value.
func (r *Registers) Set(n Register, v uint64) {
	r.Values[n&31] = v
	r.Known |= 1 << (n & 31)
}

// Lose forgets the value of a register, of a number below 32.
func (r *Registers) Lose(n Register) { r.Known &^= 1 << (n & 31) }

// StackPointer returns the number of the machine's stack pointer.
func (m Machine) StackPointer() Register {
	if m == ARM64 {
		return SP
	}
	return RSP
}

// FramePointer returns the number of the register in which code that keeps frame
// pointers has them.
func (m Machine) FramePointer() Register {
	if m == ARM64 {
		return X29
	}
	return RBP
}
