package bpf

import "hallmark/addr"

// MaxFrames is MAX_FRAMES of events.h: what a stack has at most, with the frames of the
// kernel. One with more ends with unwind.TooDeep.
const MaxFrames = 256

// MaxCopy is how much of a stack's memory a Copy has at most, in bytes.
const MaxCopy = 32 << 10

// A Copy is a sample whose stack the programs could not walk to its end, because the
// table of a file was not there. It is counted nowhere else: who takes it walks on and
// counts it. It is valid as long as Handler.Copy runs.
type Copy struct {
	Owner Owner
	// Stack is what was found of the stack. Its frames were sent before, and ended with
	// unwind.NoTable; the last of them is the one that the registers are of.
	Stack StackID
	// Counted says that the sample is counted under Stack, which is all of the stack, and
	// that the registers are those of the innermost frame of the user: see Options.CopyAll.
	Counted bool

	IP        addr.Abs   // where execution stands, or where it returns to
	Exact     bool       // it stands there: IP is no return address
	SP        addr.Abs   // the value that the stack pointer has in the frame
	Registers [32]uint64 // by their DWARF numbers, with the stack pointer
	Known     uint32     // a bit for each register whose value is in Registers

	Space  uint64   // the Space that the process had; 0: it was changing
	Entry  addr.Abs // where the stack began when the program was executed (mm->start_stack)
	Start  addr.Abs // of Memory: at SP or a little below
	Memory []byte   // of the stack, as far as it could be read, up to MaxCopy
}

// A Space is what a process has in its executable memory: areas in the order of their
// addresses. The files in it were introduced before. It is sent before the first Copy that
// names it, and again after Resend.
type Space struct {
	ID      uint64 // a hash of all that follows
	PID     uint32
	Started uint64 // of the process, as in Owner
	Areas   []Area
	Cut     bool // there are more areas than are told
}

// An Area is executable memory. A frame at an address in it has this Kind and this
// Serial, and is At the address minus Base.
type Area struct {
	Start, End addr.Abs
	Kind       FrameKind
	Serial     uint32
	Base       uint64
}
