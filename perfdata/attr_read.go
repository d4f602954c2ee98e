package perfdata

import (
	"math/bits"

	"hallmark/internal/cursor"
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
	// What an older kernel does not have reads as zero.
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
