package perfdata

import (
	"math/bits"

	"hallmark/internal/cursor"
)

// An Attr says what an event counts and what its records have: struct
// perf_event_attr of include/uapi/linux/perf_event.h. A field that is not in a struct of
// an older kernel is zero.
type Attr struct {
	Type   uint32 // PERF_TYPE_*
	Config uint64 // which event of that type
	Period uint64 // events a sample, or samples a second with AttrFreq
	Fields SampleType
	Read   ReadFormat
	Flags  AttrFlags
	Wakeup uint32 // events, or bytes with AttrWatermark

	BreakpointType   uint32
	Config1, Config2 uint64 // breakpoints: address and length
	Branches         BranchType
	UserRegs         uint64 // which registers of user space, one bit each, by the architecture's perf_regs.h
	UserStack        uint32 // bytes of the user stack in a sample, at most
	ClockID          int32  // clock of the times with AttrUseClockID
	IntrRegs         uint64 // which registers of what was interrupted
	AuxWatermark     uint32
	MaxStack         uint16 // addresses in a call chain, 0 for the kernel's limit
	AuxSampleSize    uint32
	AuxAction        uint32
	SigData          uint64
	Config3, Config4 uint64
}

// SampleType says which fields a sample has, PERF_SAMPLE_* of the kernel.
type SampleType uint64

// The fields of samples. Those of SampleTID, SampleTime, SampleID,
// SampleStreamID, SampleCPU and SampleIdentifier are at the end of other records
// as well.
const (
	SampleIP           SampleType = 1 << 0
	SampleTID          SampleType = 1 << 1
	SampleTime         SampleType = 1 << 2
	SampleAddr         SampleType = 1 << 3
	SampleRead         SampleType = 1 << 4
	SampleCallchain    SampleType = 1 << 5
	SampleID           SampleType = 1 << 6
	SampleCPU          SampleType = 1 << 7
	SamplePeriod       SampleType = 1 << 8
	SampleStreamID     SampleType = 1 << 9
	SampleRaw          SampleType = 1 << 10
	SampleBranchStack  SampleType = 1 << 11
	SampleRegsUser     SampleType = 1 << 12
	SampleStackUser    SampleType = 1 << 13
	SampleWeight       SampleType = 1 << 14
	SampleDataSource   SampleType = 1 << 15
	SampleIdentifier   SampleType = 1 << 16
	SampleTransaction  SampleType = 1 << 17
	SampleRegsIntr     SampleType = 1 << 18
	SamplePhysAddr     SampleType = 1 << 19
	SampleAux          SampleType = 1 << 20
	SampleCgroup       SampleType = 1 << 21
	SampleDataPageSize SampleType = 1 << 22
	SampleCodePageSize SampleType = 1 << 23
	SampleWeightStruct SampleType = 1 << 24

	sampleKnown = SampleWeightStruct<<1 - 1
	// originFields are those of ID.
	originFields = SampleTID | SampleTime | SampleID | SampleStreamID | SampleCPU | SampleIdentifier
)

// ReadFormat says what reading an event gives, PERF_FORMAT_* of the kernel.
type ReadFormat uint64

// The fields that a Read has besides the value.
const (
	ReadTimeEnabled ReadFormat = 1 << 0
	ReadTimeRunning ReadFormat = 1 << 1
	ReadID          ReadFormat = 1 << 2
	ReadGroup       ReadFormat = 1 << 3
	ReadLost        ReadFormat = 1 << 4

	readKnown = ReadLost<<1 - 1
)

// BranchType says which branches are recorded and what of them, PERF_SAMPLE_BRANCH_*.
type BranchType uint64

// The bits that change what a sample has.
const (
	BranchHWIndex  BranchType = 1 << 17
	BranchCounters BranchType = 1 << 19

	branchKnown = 1<<20 - 1
)

// AttrFlags are the single bits of struct perf_event_attr, the first one lowest
// on every machine.
type AttrFlags uint64

// Some of the flags, by their names in the kernel.
const (
	AttrDisabled     AttrFlags = 1 << 0
	AttrInherit      AttrFlags = 1 << 1
	AttrMmap         AttrFlags = 1 << 8
	AttrComm         AttrFlags = 1 << 9
	AttrFreq         AttrFlags = 1 << 10
	AttrEnableOnExec AttrFlags = 1 << 12
	AttrTask         AttrFlags = 1 << 13
	AttrWatermark    AttrFlags = 1 << 14
	AttrSampleIDAll  AttrFlags = 1 << 18 // records that are no samples end with their ID
	AttrMmap2        AttrFlags = 1 << 23
	AttrCommExec     AttrFlags = 1 << 24
	AttrUseClockID   AttrFlags = 1 << 25
	AttrNamespaces   AttrFlags = 1 << 28
	AttrKsymbol      AttrFlags = 1 << 29
	AttrBPFEvent     AttrFlags = 1 << 30
	AttrCgroup       AttrFlags = 1 << 32
	AttrBuildID      AttrFlags = 1 << 34
)

// Sizes of struct perf_event_attr: the first that was published, and the largest
// that is known.
const (
	attrSize0 = 64
	attrSize9 = 144
)

// readAttr reads a struct perf_event_attr with all that its size says it has. The
// cursor is behind it then, whatever is there that a newer kernel knows.
func readAttr(c *cursor.Cursor, big bool) Attr {
	start := c.Pos()
	a := Attr{Type: c.U32()}
	size := c.U32()
	if size == 0 { // of the first perf versions
		size = attrSize0
	}
	if size < attrSize0 || size%8 != 0 {
		c.Fail("perf_event_attr of %d bytes", size)
	}
	body := c.Bytes(uint64(size) - 8)
	if c.Err() != nil {
		return Attr{}
	}
	// A field that an older kernel does not have reads as zero.
	var whole [attrSize9 - 8]byte
	copy(whole[:], body)
	b := cursor.New(whole[:], int64(start)+8, big)
	a.Config, a.Period = b.U64(), b.U64()
	a.Fields, a.Read = SampleType(b.U64()), ReadFormat(b.U64())
	a.Flags = flagsOf(b.U64(), big)
	a.Wakeup, a.BreakpointType = b.U32(), b.U32()
	a.Config1, a.Config2 = b.U64(), b.U64()
	a.Branches, a.UserRegs = BranchType(b.U64()), b.U64()
	a.UserStack, a.ClockID = b.U32(), int32(b.U32())
	a.IntrRegs = b.U64()
	a.AuxWatermark, a.MaxStack = b.U32(), b.U16()
	b.Skip(2)
	a.AuxSampleSize, a.AuxAction = b.U32(), b.U32()
	a.SigData, a.Config3, a.Config4 = b.U64(), b.U64(), b.U64()
	return a
}

// flagsOf puts the first bit lowest: compilers for big-endian machines begin
// bit fields at the highest one.
func flagsOf(word uint64, big bool) AttrFlags {
	if big {
		return AttrFlags(bits.Reverse64(word))
	}
	return AttrFlags(word)
}
