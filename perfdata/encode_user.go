package perfdata

import (
	"fmt"
	"math/bits"
)

// encodeUser appends what decodeUser reads.
func encodeUser(b *builder, r Record, big bool) (kind Type, misc uint16, err error) {
	switch r := r.(type) {
	case *HeaderAttr:
		b.attr(r.Attr, r.Attr.size(), big)
		b.u64(r.IDs...)
		return TypeHeaderAttr, 0, nil
	case *EventUpdate:
		b.u64(r.Kind, r.Event)
		b.bytes(r.Data)
		b.align()
		return TypeEventUpdate, 0, nil
	case *HeaderBuildID:
		return TypeHeaderBuildID, r.Misc | miscBuildIDSize, b.buildID(r)
	case *IDIndex:
		b.u64(uint64(len(r.Entries)))
		for _, e := range r.Entries {
			b.u64(e.ID, e.Index, e.CPU, e.TID)
		}
		return TypeIDIndex, 0, nil
	case *Auxtrace:
		if r.Size != 0 {
			return TypeAuxtrace, 0, fmt.Errorf("the %d bytes of the AUX area behind it are not known", r.Size)
		}
		b.u64(r.Size, r.Offset, r.Reference)
		b.u32(r.Index, r.TID, r.CPU, 0)
		return TypeAuxtrace, 0, nil
	case *ThreadMap:
		b.u64(uint64(len(r.Threads)))
		for _, t := range r.Threads {
			b.u64(t.TID)
			b.fixed(t.Name, 16)
		}
		return TypeThreadMap, 0, nil
	case *CPUMap:
		b.cpuMap(r)
		return TypeCPUMap, 0, nil
	case *TimeConv:
		b.u64(r.Shift, r.Mult, r.Zero, r.Cycles, r.Mask)
		b.u8(bit(r.CapZero))
		b.u8(bit(r.CapShort))
		b.align()
		return TypeTimeConv, 0, nil
	case *HeaderFeature:
		b.u64(uint64(r.Feature))
		b.bytes(r.Data)
		b.align()
		return TypeHeaderFeature, 0, nil
	case *Marker:
		return r.Type, 0, nil
	case *Stat:
		b.u64(r.Event)
		b.u32(r.CPU, r.Thread)
		b.u64(r.Value, r.Enabled, r.Running)
		return TypeStat, 0, nil
	case *StatRound:
		b.u64(r.Kind, r.Time)
		return TypeStatRound, 0, nil
	}
	return 0, 0, fmt.Errorf("%T cannot be written", r)
}

func bit(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

func (b *builder) buildID(r *HeaderBuildID) error {
	if len(r.BuildID) > 20 {
		return fmt.Errorf("build ID of %d bytes, and 20 are possible", len(r.BuildID))
	}
	b.u32(uint32(r.PID))
	b.fixed(string(r.BuildID), 20)
	b.u8(uint8(len(r.BuildID)))
	b.bytes(make([]byte, 3))
	b.text(r.Name)
	return nil
}

// size returns how large a struct perf_event_attr is that says all of it: as large
// as that of Linux 5.13 at least, which perf had when it got its present form.
func (a *Attr) size() int {
	switch {
	case a.Config4 != 0:
		return attrSize9
	case a.Config3 != 0:
		return attrSize9 - 8
	}
	return attrSize9 - 16
}

func (b *builder) attr(a Attr, size int, big bool) {
	start := len(b.buf)
	flags := uint64(a.Flags)
	if big {
		flags = bits.Reverse64(flags)
	}
	b.u32(a.Type, uint32(size))
	b.u64(a.Config, a.Period, uint64(a.Fields), uint64(a.Read), flags)
	b.u32(a.Wakeup, a.BreakpointType)
	b.u64(a.Config1, a.Config2, uint64(a.Branches), a.UserRegs)
	b.u32(a.UserStack, uint32(a.ClockID))
	b.u64(a.IntrRegs)
	b.u32(a.AuxWatermark)
	b.u16(a.MaxStack)
	b.u16(0)
	b.u32(a.AuxSampleSize, a.AuxAction)
	b.u64(a.SigData, a.Config3, a.Config4)
	b.buf = b.buf[:start+size]
}
