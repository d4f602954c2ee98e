package perfdata

import (
	"hallmark/addr"
	"hallmark/internal/cursor"
)

// Reading is the count of an event when a task that had inherited it ended
// (PERF_RECORD_READ).
type Reading struct {
	ID
	OwnerPID, OwnerTID uint32
	Read               Read
}

// Aux reports data that came into the AUX area (PERF_RECORD_AUX).
type Aux struct {
	ID
	Offset, Size uint64 // bytes
	Flags        uint64 // PERF_AUX_FLAG_*
}

// ItraceStart says that the trace of a task's instructions began (PERF_RECORD_ITRACE_START).
type ItraceStart struct {
	ID
	OwnerPID, OwnerTID uint32
}

// Switch is a switch between tasks (PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE).
type Switch struct {
	ID
	Type               Type
	Out                bool
	OtherPID, OtherTID uint32 // which came or went, with TypeSwitchCPUWide
}

// Namespaces are those of a process (PERF_RECORD_NAMESPACES).
type Namespaces struct {
	ID
	OwnerPID, OwnerTID uint32
	// Links are the namespaces, in the order of enum perf_namespaces: net, uts,
	// ipc, pid, user, mnt, cgroup.
	Links []Namespace
}

// Namespace is the file in /proc/PID/ns.
type Namespace struct{ Device, Inode uint64 }

// BPFEvent is a BPF program that was loaded or unloaded (PERF_RECORD_BPF_EVENT).
type BPFEvent struct {
	ID
	Kind, Flags uint16 // PERF_BPF_EVENT_PROG_LOAD is 1, …_UNLOAD 2
	Program     uint32
	Tag         [8]byte
}

// TextPoke is kernel code that was changed (PERF_RECORD_TEXT_POKE).
type TextPoke struct {
	ID
	Addr     addr.Abs
	Old, New []byte
}

// AuxOutputHWID says which hardware writes into the AUX area (PERF_RECORD_AUX_OUTPUT_HW_ID).
type AuxOutputHWID struct {
	ID
	Hardware uint64
}

// CallchainDeferred is the user part of a call chain, which the kernel took when
// the task returned to user space (PERF_RECORD_CALLCHAIN_DEFERRED).
type CallchainDeferred struct {
	ID
	Cookie    uint64
	Callchain []uint64
}

func (*Reading) record()           {}
func (*Aux) record()               {}
func (*ItraceStart) record()       {}
func (*Switch) record()            {}
func (*Namespaces) record()        {}
func (*BPFEvent) record()          {}
func (*TextPoke) record()          {}
func (*AuxOutputHWID) record()     {}
func (*CallchainDeferred) record() {}

// rareBody decodes the kinds of the kernel's records that few recordings have. It
// returns nil for others.
func (d *Decoder) rareBody(c *cursor.Cursor, kind Type, misc uint16, rec []byte) Record {
	switch kind {
	case TypeRead:
		r := &Reading{OwnerPID: c.U32(), OwnerTID: c.U32()}
		d.read(c, &r.Read)
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeAux:
		r := &Aux{Offset: c.U64(), Size: c.U64(), Flags: c.U64()}
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeItraceStart:
		r := &ItraceStart{OwnerPID: c.U32(), OwnerTID: c.U32()}
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeSwitch, TypeSwitchCPUWide:
		d.context = Switch{Type: kind, Out: misc&miscSwitchOut != 0}
		if kind == TypeSwitchCPUWide {
			d.context.OtherPID, d.context.OtherTID = c.U32(), c.U32()
		}
		d.context.ID = d.trailer(c, rec, misc)
		return &d.context
	case TypeNamespaces:
		return d.namespaces(c, misc, rec)
	case TypeBPFEvent:
		r := &BPFEvent{Kind: c.U16(), Flags: c.U16(), Program: c.U32()}
		copy(r.Tag[:], c.Bytes(8))
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeTextPoke:
		r := &TextPoke{Addr: addr.Abs(c.U64())}
		older, newer := c.U16(), c.U16()
		r.Old, r.New = c.Bytes(uint64(older)), c.Bytes(uint64(newer))
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeAuxOutputHWID:
		r := &AuxOutputHWID{Hardware: c.U64()}
		r.ID = d.trailer(c, rec, misc)
		return r
	case TypeCallchainDeferred:
		r := &CallchainDeferred{Cookie: c.U64()}
		r.Callchain = d.words(c, nil, c.U64(), "call chain of %d entries in %d bytes")
		r.ID = d.trailer(c, rec, misc)
		return r
	}
	return nil
}

func (d *Decoder) namespaces(c *cursor.Cursor, misc uint16, rec []byte) Record {
	r := &Namespaces{OwnerPID: c.U32(), OwnerTID: c.U32()}
	n := c.U64()
	if n > uint64(c.Len()/16) {
		c.Fail("%d namespaces in %d bytes", n, c.Len())
		return r
	}
	for range n {
		r.Links = append(r.Links, Namespace{Device: c.U64(), Inode: c.U64()})
	}
	r.ID = d.trailer(c, rec, misc)
	return r
}
