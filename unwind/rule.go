package unwind

// Machine is an instruction set architecture.
type Machine uint8

// The machines whose code can be unwound.
const (
	X86_64 Machine = 1
	ARM64  Machine = 2
)

// A Register is a register by the number that DWARF gives it: the System V ABI for
// x86-64, figure 3.36; DWARF for the Arm 64-bit Architecture, section 4.1.
type Register uint8

// Registers of x86-64 and of arm64.
const (
	RBX Register = 3
	RBP Register = 6
	RSP Register = 7
	R12 Register = 12
	R13 Register = 13
	R14 Register = 14
	R15 Register = 15

	X29 Register = 29
	X30 Register = 30
	SP  Register = 31
)

// Saved returns the registers whose places rules know, in the order of Rule.Saved.
// The others that functions must preserve are lost at the first caller.
func (m Machine) Saved() []Register {
	if m == ARM64 {
		return savedARM64[:]
	}
	return savedX86[:]
}

var (
	savedX86   = [...]Register{RBX, RBP, R12, R13, R14, R15}
	savedARM64 = [...]Register{X29}
)

// Kind is how a rule finds the canonical frame address: the value that the stack
// pointer has in the caller once the call has returned (DWARF section 6.4).
type Kind uint8

// The kinds of rules. enum unwind_kind of internal/bpf/c/unwind.h has the same numbers.
const (
	None      Kind = iota // nothing is known: see Silence
	Outermost             // there is no caller: the return address is undefined
	Reg                   // register + offset
	Deref                 // what lies at register + offset, + 8·addend
	PLT                   // rsp + 8, and 8 more in the last bytes of an entry, from offset on, of 16
	Signal                // the kernel's signal frame is at sp + offset, and has all registers
	FP                    // code that keeps frame pointers, and says nothing else
	Goroutine             // the goroutine that register's g works for: see goroutine.go
)

// Silence is why a rule of kind None says nothing.
type Silence uint8

// The reasons.
const (
	Gap        Silence = iota // no call frame information covers the place
	Expression                // a DWARF expression that rules cannot say
	Unusual                   // a rule for a register that rules cannot say
	Damaged                   // the call frame information is malformed
)

// Source is where a rule comes from.
type Source uint8

// The sources.
const (
	NoSource   Source = iota
	EHFrame           // .eh_frame
	DebugFrame        // .debug_frame
	Pclntab           // the table of stack depths of Go's linker
	PLTCode           // the form of the linker's stubs
	Known             // code that is known by its bytes
)

// Values of Rule.RA and Rule.Saved that are no places.
const (
	Same    int8 = -128 // unchanged; for the return address: in Rule.Link
	Unknown int8 = 127  // lost
)

// Flags of rules, in the lower five bits of Rule.Flags.
const (
	// SavedAtRegister: saved registers lie relative to the value of Rule.Register, not to
	// the CFA: functions that align their stack.
	SavedAtRegister = 1 << iota
	// OtherStack: the caller may be on another stack, so that its stack pointer may be
	// below this one.
	OtherStack
	// Interrupted: the caller was interrupted and did not call, so that the return address
	// is where it stood.
	Interrupted
	// ReturnAtRegister: the return address lies relative to the value of Rule.Register,
	// not to the CFA.
	ReturnAtRegister
	// SavedAtFramePointer: saved registers lie relative to the value of the frame pointer,
	// while the CFA is found from another register: the beginning and the end of functions
	// that align their stack. Where that value is not between the stack pointer and the CFA,
	// it is the caller's again, and so are the others, which were found from it.
	SavedAtFramePointer

	sourceShift = 5
	ruleFlags   = 1<<sourceShift - 1
)

// A Rule says how to get from one frame to its caller's.
type Rule struct {
	Kind     Kind
	Register Register // or Silence, of a rule of kind None
	Flags    uint8    // SavedAtRegister and others, and the Source in the upper three bits
	RA       int8     // units of 8 bytes from the CFA or a register's value, or Same
	Offset   int32    // bytes
	Saved    [6]int8  // units of 8 bytes from the CFA or a register's value, Same, or Unknown
	Addend   int8     // units of 8 bytes
	Link     Register // that the return address is in, if RA is Same
}

// Source returns where the rule comes from.
func (r *Rule) Source() Source { return Source(r.Flags >> sourceShift) }

// Silence returns why a rule of kind None says nothing.
func (r *Rule) Silence() Silence { return Silence(r.Register) }

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
