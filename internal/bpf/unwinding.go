package bpf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"hallmark/addr"
)

// MaxFrames is MAX_FRAMES of events/stack.h: what a stack has at most, with the frames of the
// kernel. One with more ends with unwind.TooDeep.
const MaxFrames = 1024

// MaxCopy is how much of a stack's memory a Copy has at most, in bytes.
const MaxCopy = 32 << 10

// A Copy is a sample whose stack the programs could not walk to its end, because the
// table of a file was not there. It is counted nowhere else: who takes it walks on and
// counts it. It is valid as long as Handler.Copy runs.
type Copy struct {
	Task Task
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
	// Missing has a bit for each page of 4096 bytes of Memory, from that of Start on: it could
	// not be read.
	Missing uint16
}

// A Space is what a process has in its executable memory: areas in the order of their
// addresses. The files in it were introduced before. It is sent before the first Copy that
// names it, and again after Resend.
type Space struct {
	ID      uint64 // a hash of all that follows
	PID     uint32
	Started uint64 // of the process, as in Task
	VMAs    []VMA
	Cut     bool // there are more areas than are reported
}

// A VMA is executable memory. A frame at an address in it has this Kind and this
// Serial, and is At the address minus Base.
type VMA struct {
	Start, End addr.Abs
	Kind       FrameKind
	Serial     uint32
	Base       uint64
}

// unwindEvents returns how large the ring is from which user space takes what is to be finished, in bytes: copies of
// stacks have 2 MiB of it (RING_FOR_COPIES), and the records of each CPU one, up to 8 in all.
func unwindEvents(cpus int) uint32 {
	if cpus <= 2 {
		return 4 << 20
	}
	return 8 << 20
}

// setUnwind prepares what the programs unwind with.
func setUnwind(spec *ebpf.CollectionSpec, o *Options) error {
	err := errors.Join(spec.Variables["unwinding"].Set(o.Unwind), spec.Variables["copy_all"].Set(o.Unwind && o.CopyAll))
	if err != nil || !o.Unwind {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	memory := min(max(cmp.Or(o.UnwindMemory, DefaultUnwindMemory), chunkSize), 1<<32-chunkSize)
	spec.Maps["chunks"].MaxEntries = uint32((memory + chunkSize - 1) / chunkSize)
	spec.Maps["unwind_tables"].MaxEntries = uint32(cmp.Or(o.Entries, DefaultEntries)) + 1
	spec.Maps["desks"].MaxEntries = uint32(cpus)
	spec.Maps["events"].MaxEntries = unwindEvents(cpus)
	return nil
}

func dispatchCopy(event []byte, h Handler) error {
	var e samplerCopyEvent
	if err := decode(event, &e); err != nil {
		return err
	}
	memory := event[unsafe.Sizeof(e):]
	if uint64(len(memory)) < uint64(e.Size) {
		return fmt.Errorf("BPF copy of %d bytes in %d", e.Size, len(memory))
	}
	c := Copy{
		Task:      taskOf(&e.Key, nil),
		Stack:     StackID{e.Key.Stack.A, e.Key.Stack.B},
		Counted:   e.Counted != 0,
		IP:        addr.Abs(e.Ip),
		Exact:     e.Exact != 0,
		SP:        addr.Abs(e.Registers[stackPointer]),
		Registers: e.Registers,
		Known:     e.Known,
		Space:     e.Space,
		Entry:     addr.Abs(e.Entry),
		Start:     addr.Abs(e.Start),
		Memory:    memory[:e.Size:e.Size],
		Missing:   e.Missing,
	}
	h.Copy(&c)
	return nil
}

// Sizes of struct space_event without its areas, and of struct space_area.
const (
	spaceHeader = 32
	areaSize    = 32
)

func dispatchSpace(event []byte, h Handler) error {
	if len(event) < spaceHeader {
		return fmt.Errorf("BPF space of %d bytes", len(event))
	}
	order := binary.NativeEndian
	count := order.Uint32(event[24:])
	s := Space{
		PID:     order.Uint32(event[4:]),
		Started: order.Uint64(event[8:]),
		ID:      order.Uint64(event[16:]),
		Cut:     order.Uint32(event[28:]) != 0,
	}
	if event = event[spaceHeader:]; uint64(len(event)) < uint64(count)*areaSize {
		return fmt.Errorf("BPF space of %d areas in %d bytes", count, len(event))
	}
	s.VMAs = make([]VMA, count)
	for i := range s.VMAs {
		b := event[i*areaSize:]
		where := order.Uint64(b[16:])
		s.VMAs[i] = VMA{
			Start:  addr.Abs(order.Uint64(b)),
			End:    addr.Abs(order.Uint64(b[8:])),
			Kind:   FrameKind(where >> 32 & 0xff),
			Serial: uint32(where),
			Base:   order.Uint64(b[24:]),
		}
	}
	h.Space(&s)
	return nil
}
