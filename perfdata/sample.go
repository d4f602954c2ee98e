package perfdata

import (
	"encoding/binary"
	"math/bits"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// Sample is one sample (PERF_RECORD_SAMPLE). Fields that its event did not ask
// for are zero; the slices are valid until the next Decode.
type Sample struct {
	ID
	IP     addr.Abs
	Addr   addr.Abs // that the event is about: of a page fault, of data, of a breakpoint
	Period uint64   // events (or ns, for clocks) that this sample stands for, 0 when neither it nor its event has it
	Cgroup uint64   // inode number of the cgroup v2 directory, 0 when not asked for
	// Callchain has absolute addresses, leaf first, with the kernel's context
	// markers between them (ContextUser …).
	Callchain []uint64
	Read      Read
	Raw       []byte // what a tracepoint or the hardware added, in the machine's byte order
	// Branches are the last branches taken, newest first.
	Branches []Branch
	// BranchIndex is the place in the hardware's stack of the newest branch, with BranchHWIndex.
	BranchIndex uint64
	// BranchCounts has a number for each branch, with BranchCounters.
	BranchCounts []uint64
	// UserRegs are the registers of user space, as they were when the task entered
	// the kernel or was interrupted.
	UserRegs Regs
	// UserStack is the memory from the user stack pointer upward, as much of it as
	// was asked for and could be read.
	UserStack []byte
	// IntrRegs are the registers at the interrupt.
	IntrRegs     Regs
	Weight       uint64 // SampleWeight, or the three parts that WeightParts takes apart
	DataSource   uint64 // union perf_mem_data_src
	Transaction  uint64
	PhysAddr     uint64
	DataPageSize uint64 // bytes
	CodePageSize uint64 // bytes
	Aux          []byte // of the AUX area
}

// Regs are values of registers. The zero value has none.
type Regs struct {
	// ABI says how wide they are, 0 when the task had none: a kernel thread
	// has no registers of user space.
	ABI RegsABI
	// Mask has a bit for each register that there is a value for, numbered as in
	// the architecture's arch/*/include/uapi/asm/perf_regs.h.
	Mask   uint64
	Values []uint64 // lowest number first
}

// RegsABI is PERF_SAMPLE_REGS_ABI_*.
type RegsABI uint64

// How wide the registers are.
const (
	RegsNone RegsABI = 0
	Regs32   RegsABI = 1
	Regs64   RegsABI = 2
)

// Get returns the value of the register with the number n, if it is there.
func (r Regs) Get(n int) (value uint64, ok bool) {
	if n < 0 || n > 63 || r.Mask>>n&1 == 0 {
		return 0, false
	}
	i := bits.OnesCount64(r.Mask & (1<<n - 1))
	if i >= len(r.Values) {
		return 0, false
	}
	return r.Values[i], true
}

// Read is the value of an event, and of the others in its group (struct
// read_format as Format says).
type Read struct {
	TimeEnabled, TimeRunning uint64 // ns, with ReadTimeEnabled and ReadTimeRunning
	Values                   []ReadValue
}

// ReadValue is the count of one event.
type ReadValue struct {
	Value uint64
	Event uint64 // number of the event, with ReadID
	Lost  uint64 // samples that were lost, with ReadLost
}

// Branch is a branch that was taken (struct perf_branch_entry).
type Branch struct {
	From, To addr.Abs
	Flags    BranchFlags
}

// BranchFlags is what the hardware says of a branch.
type BranchFlags struct {
	Mispredicted, Predicted bool // neither: the hardware does not report it
	InTransaction, Abort    bool
	Cycles                  uint16 // since the branch before
	Type                    uint8  // PERF_BR_*
	Spec                    uint8  // PERF_BR_SPEC_*
	NewType                 uint8  // PERF_BR_NEW_*
	Privilege               uint8  // PERF_BR_PRIV_*
}

// branchFlags takes a word of bit fields apart, which on big-endian machines
// begin at the highest bit.
func branchFlags(w uint64, big bool) BranchFlags {
	at := uint(0)
	take := func(n uint) uint64 {
		shift := at
		if big {
			shift = 64 - at - n
		}
		at += n
		return w >> shift & (1<<n - 1)
	}
	return BranchFlags{
		Mispredicted: take(1) != 0, Predicted: take(1) != 0, InTransaction: take(1) != 0, Abort: take(1) != 0,
		Cycles: uint16(take(16)), Type: uint8(take(4)), Spec: uint8(take(2)), NewType: uint8(take(4)), Privilege: uint8(take(3)),
	}
}

// WeightParts takes the Weight of SampleWeightStruct apart (union perf_sample_weight).
func (s *Sample) WeightParts() (v1 uint32, v2, v3 uint16) {
	return uint32(s.Weight), uint16(s.Weight >> 32), uint16(s.Weight >> 48)
}

// Mode is what the processor was doing.
func (id ID) Mode() Mode { return Mode(id.Misc & 7) }

// Mode is PERF_RECORD_MISC_CPUMODE_MASK.
type Mode uint16

// The modes of the processor.
const (
	ModeUnknown     Mode = 0
	ModeKernel      Mode = 1
	ModeUser        Mode = 2
	ModeHypervisor  Mode = 3
	ModeGuestKernel Mode = 4
	ModeGuestUser   Mode = 5
)

// decodeSample reads the fields in the order that perf_output_sample of
// kernel/events/core.c writes them in.
func (d *Decoder) decodeSample(c *cursor.Cursor, misc uint16) Record {
	s := &d.sample
	*s = Sample{
		Callchain: s.Callchain[:0], Read: Read{Values: s.Read.Values[:0]}, ID: ID{Misc: misc},
		Branches: s.Branches[:0], BranchCounts: s.BranchCounts[:0],
		UserRegs: Regs{Values: s.UserRegs.Values[:0]}, IntrRegs: Regs{Values: s.IntrRegs.Values[:0]},
	}
	has := d.attr.Fields
	identifier := uint64(0)
	if has&SampleIdentifier != 0 {
		identifier = c.U64()
	}
	if has&SampleIP != 0 {
		s.IP = addr.Abs(c.U64())
	}
	if has&SampleTID != 0 {
		s.PID, s.TID = c.U32(), c.U32()
	}
	if has&SampleTime != 0 {
		s.Time = c.U64()
	}
	if has&SampleAddr != 0 {
		s.Addr = addr.Abs(c.U64())
	}
	if has&SampleID != 0 {
		s.Event = c.U64()
	} else {
		s.Event = identifier
	}
	if has&SampleStreamID != 0 {
		s.Stream = c.U64()
	}
	if has&SampleCPU != 0 {
		s.CPU = c.U32()
		c.Skip(4)
	}
	if has&SamplePeriod != 0 {
		s.Period = c.U64()
	} else if d.attr.Flags&AttrFreq == 0 {
		s.Period = d.attr.Period
	}
	if has&SampleRead != 0 {
		d.read(c, &s.Read)
	}
	if has&SampleCallchain != 0 {
		n := c.U64()
		s.Callchain = d.words(c, s.Callchain, n, "call chain of %d entries in %d bytes")
	}
	if has&^(SampleCallchain<<1-1|SampleID|SampleCPU|SamplePeriod|SampleStreamID|SampleIdentifier) != 0 {
		d.decodeRest(c, s)
	}
	return s
}

// decodeRest reads what comes behind the call chain.
func (d *Decoder) decodeRest(c *cursor.Cursor, s *Sample) {
	has := d.attr.Fields
	if has&SampleRaw != 0 {
		n := c.U32()
		s.Raw = c.Bytes(uint64(n))
	}
	if has&SampleBranchStack != 0 {
		d.branches(c, s)
	}
	if has&SampleRegsUser != 0 {
		d.registers(c, &s.UserRegs, d.attr.UserRegs)
	}
	if has&SampleStackUser != 0 {
		s.UserStack = userStack(c)
	}
	if has&(SampleWeight|SampleWeightStruct) != 0 {
		s.Weight = c.U64()
	}
	if has&SampleDataSource != 0 {
		s.DataSource = c.U64()
	}
	if has&SampleTransaction != 0 {
		s.Transaction = c.U64()
	}
	if has&SampleRegsIntr != 0 {
		d.registers(c, &s.IntrRegs, d.attr.IntrRegs)
	}
	if has&SamplePhysAddr != 0 {
		s.PhysAddr = c.U64()
	}
	if has&SampleCgroup != 0 {
		s.Cgroup = c.U64()
	}
	if has&SampleDataPageSize != 0 {
		s.DataPageSize = c.U64()
	}
	if has&SampleCodePageSize != 0 {
		s.CodePageSize = c.U64()
	}
	if has&SampleAux != 0 {
		s.Aux = c.Bytes(c.U64())
	}
}

// words appends n numbers to to; what is the message when there are not that many.
func (d *Decoder) words(c *cursor.Cursor, to []uint64, n uint64, what string) []uint64 {
	if n > uint64(c.Len()/8) {
		c.Fail(what, n, c.Len())
		return to
	}
	data := c.Bytes(8 * n)
	if d.big {
		for ; len(data) >= 8; data = data[8:] {
			to = append(to, binary.BigEndian.Uint64(data))
		}
		return to
	}
	for ; len(data) >= 8; data = data[8:] {
		to = append(to, binary.LittleEndian.Uint64(data))
	}
	return to
}

func (d *Decoder) registers(c *cursor.Cursor, r *Regs, mask uint64) {
	r.ABI = RegsABI(c.U64())
	if r.ABI == RegsNone {
		return
	}
	r.Mask = mask
	r.Values = d.words(c, r.Values, uint64(bits.OnesCount64(mask)), "%d registers in %d bytes")
}

// userStack reads the copy of a stack: the bytes that there is room for, and
// behind them how many of them are filled: none of a task whose stack cannot be read.
func userStack(c *cursor.Cursor) []byte {
	size := c.U64()
	if size == 0 {
		return nil
	}
	room := c.Bytes(size)
	filled := c.U64()
	if filled > uint64(len(room)) {
		c.Fail("user stack of %d bytes where there is room for %d", filled, len(room))
		return nil
	}
	if filled == 0 {
		return nil
	}
	return room[:filled]
}

func (d *Decoder) branches(c *cursor.Cursor, s *Sample) {
	n := c.U64()
	if d.attr.Branches&BranchHWIndex != 0 {
		s.BranchIndex = c.U64()
	}
	if n > uint64(c.Len()/24) {
		c.Fail("%d branches in %d bytes", n, c.Len())
		return
	}
	for range n {
		b := Branch{From: addr.Abs(c.U64()), To: addr.Abs(c.U64())}
		b.Flags = branchFlags(c.U64(), d.big)
		s.Branches = append(s.Branches, b)
	}
	if d.attr.Branches&BranchCounters != 0 {
		s.BranchCounts = d.words(c, s.BranchCounts, n, "counters of %d branches in %d bytes")
	}
}

// read reads a struct read_format: with ReadGroup the times come first and are
// those of all events.
func (d *Decoder) read(c *cursor.Cursor, r *Read) {
	format := d.attr.Read
	n := uint64(1)
	var value uint64
	if format&ReadGroup != 0 {
		n = c.U64()
	} else {
		value = c.U64()
	}
	if format&ReadTimeEnabled != 0 {
		r.TimeEnabled = c.U64()
	}
	if format&ReadTimeRunning != 0 {
		r.TimeRunning = c.U64()
	}
	if format&ReadGroup != 0 && n > uint64(c.Len()/8) {
		c.Fail("values of %d events in %d bytes", n, c.Len())
		return
	}
	for range n {
		v := ReadValue{Value: value}
		if format&ReadGroup != 0 {
			v.Value = c.U64()
		}
		if format&ReadID != 0 {
			v.Event = c.U64()
		}
		if format&ReadLost != 0 {
			v.Lost = c.U64()
		}
		r.Values = append(r.Values, v)
	}
}
