package perfdata

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// An Encoder makes the bytes of records: the opposite of a Decoder.
type Encoder struct {
	attr    Attr
	trailed SampleType
	order   byteOrder
	big     bool
}

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func orderOf(big bool) byteOrder {
	if big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// NewEncoder returns an Encoder for records of events with these attributes, as a
// machine of the given byte order writes them. It fails like NewAttrDecoder.
func NewEncoder(attr Attr, big bool) (*Encoder, error) {
	d, err := NewAttrDecoder(attr, big)
	if err != nil {
		return nil, err
	}
	return &Encoder{attr: attr, trailed: d.trailed, order: orderOf(big), big: big}, nil
}

// Append appends the bytes of a record, header included. The error says why there
// are none: it is too large for its header to say so, or has other registers than
// its event, or is Malformed and not whole.
func (e *Encoder) Append(to []byte, r Record) ([]byte, error) {
	b := builder{buf: append(to, make([]byte, HeaderSize)...), start: len(to), byteOrder: e.order}
	kind, misc, err := e.body(&b, r)
	size := len(b.buf) - b.start
	if err == nil && size > 0xffff {
		err = fmt.Errorf("%d bytes, and 65535 are possible", size)
	}
	if err != nil {
		return to, fmt.Errorf("%v record: %w", kind, err)
	}
	e.order.PutUint32(b.buf[b.start:], uint32(kind))
	e.order.PutUint16(b.buf[b.start+4:], misc)
	e.order.PutUint16(b.buf[b.start+6:], uint16(size))
	return b.buf, nil
}

// builder appends numbers and strings.
type builder struct {
	byteOrder
	buf   []byte
	start int // of the record
}

func (b *builder) u8(n uint8) { b.buf = append(b.buf, n) }

func (b *builder) u16(n uint16) { b.buf = b.AppendUint16(b.buf, n) }

func (b *builder) u32(ns ...uint32) {
	for _, n := range ns {
		b.buf = b.AppendUint32(b.buf, n)
	}
}

func (b *builder) u64(ns ...uint64) {
	for _, n := range ns {
		b.buf = b.AppendUint64(b.buf, n)
	}
}

func (b *builder) bytes(data []byte) { b.buf = append(b.buf, data...) }

// text appends a string with at least one NUL, up to a multiple of 8 bytes.
func (b *builder) text(s string) {
	b.buf = append(append(b.buf, s...), 0)
	b.align()
}

func (b *builder) align() {
	for (len(b.buf)-b.start)%8 != 0 {
		b.buf = append(b.buf, 0)
	}
}

// fixed appends a string in exactly n bytes.
func (b *builder) fixed(s string, n int) {
	b.buf = append(b.buf, s[:min(len(s), n)]...)
	b.buf = append(b.buf, make([]byte, n-min(len(s), n))...)
}

// body appends a record without its header.
func (e *Encoder) body(b *builder, r Record) (kind Type, misc uint16, err error) {
	switch r := r.(type) {
	case *Sample:
		return TypeSample, r.Misc, e.sample(b, r)
	case *Mmap2:
		kind, misc = e.mmap(b, r)
		return kind, misc, nil
	case *Comm:
		b.u32(r.OwnerPID, r.OwnerTID)
		b.text(r.Name)
		e.trailer(b, r.ID)
		return TypeComm, flag(r.Misc, miscCommExec, r.Exec), nil
	case *Task:
		b.u32(r.ChildPID, r.ParentPID, r.ChildTID, r.ParentTID)
		b.u64(r.At)
		e.trailer(b, r.ID)
		return either(r.Exited, TypeExit, TypeFork), r.Misc, nil
	case *Lost:
		if r.Type == TypeLost {
			b.u64(r.Of)
		}
		b.u64(r.Count)
		e.trailer(b, r.ID)
		return r.Type, r.Misc, nil
	case *Throttle:
		b.u64(r.At, r.Of, r.From)
		e.trailer(b, r.ID)
		return either(r.Ended, TypeUnthrottle, TypeThrottle), r.Misc, nil
	case *Ksymbol:
		b.u64(uint64(r.Addr))
		b.u32(r.Size)
		b.u16(r.Kind)
		b.u16(flag(r.Flags, 1, r.Unregistered))
		b.text(r.Name)
		e.trailer(b, r.ID)
		return TypeKsymbol, r.Misc, nil
	case *Cgroup:
		b.u64(r.Cgroup)
		b.text(r.Path)
		e.trailer(b, r.ID)
		return TypeCgroup, r.Misc, nil
	case *Malformed:
		b.bytes(r.Data)
		return r.Type, r.Misc, nil
	case *Unknown:
		b.bytes(r.Data)
		return r.Type, r.Misc, nil
	}
	if kind, misc, err := e.rare(b, r); kind != 0 {
		return kind, misc, err
	}
	return encodeUser(b, r, e.big)
}

func flag(misc, bit uint16, set bool) uint16 {
	if set {
		return misc | bit
	}
	return misc &^ bit
}

func either(which bool, yes, no Type) Type {
	if which {
		return yes
	}
	return no
}

func (e *Encoder) mmap(b *builder, r *Mmap2) (Type, uint16) {
	b.u32(r.Owner, r.Thread)
	b.u64(uint64(r.Start), r.Size, uint64(r.Offset))
	misc := r.Misc
	if r.Type == TypeMmap {
		misc = flag(misc, miscMmapData, r.Prot&protExec == 0)
	} else {
		if misc = flag(misc, miscMmapBuildID, r.BuildID != nil || e.unasked(misc)); r.BuildID != nil {
			b.u8(uint8(min(len(r.BuildID), 20)))
			b.bytes(make([]byte, 3))
			b.fixed(string(r.BuildID), 20)
		} else {
			b.u32(r.Major, r.Minor)
			b.u64(r.Inode, r.Generation)
		}
		b.u32(r.Prot, r.Flags)
	}
	b.text(r.Name)
	e.trailer(b, r.ID)
	return either(r.Type == TypeMmap, TypeMmap, TypeMmap2), misc
}

func (e *Encoder) trailer(b *builder, id ID) {
	if e.trailed&SampleTID != 0 {
		b.u32(id.PID, id.TID)
	}
	if e.trailed&SampleTime != 0 {
		b.u64(id.Time)
	}
	if e.trailed&SampleID != 0 {
		b.u64(id.Event)
	}
	if e.trailed&SampleStreamID != 0 {
		b.u64(id.Stream)
	}
	if e.trailed&SampleCPU != 0 {
		b.u32(id.CPU, 0)
	}
	if e.trailed&SampleIdentifier != 0 {
		b.u64(id.Event)
	}
}

// sample appends the fields in the order of decodeSample.
func (e *Encoder) sample(b *builder, s *Sample) error {
	has := e.attr.Fields
	put := func(field SampleType, n uint64) {
		if has&field != 0 {
			b.u64(n)
		}
	}
	put(SampleIdentifier, s.Event)
	put(SampleIP, uint64(s.IP))
	if has&SampleTID != 0 {
		b.u32(s.PID, s.TID)
	}
	put(SampleTime, s.Time)
	put(SampleAddr, uint64(s.Addr))
	put(SampleID, s.Event)
	put(SampleStreamID, s.Stream)
	if has&SampleCPU != 0 {
		b.u32(s.CPU, 0)
	}
	put(SamplePeriod, s.Period)
	if has&SampleRead != 0 {
		if err := e.read(b, s.Read); err != nil {
			return err
		}
	}
	if has&SampleCallchain != 0 {
		b.u64(uint64(len(s.Callchain)))
		b.u64(s.Callchain...)
	}
	if has&SampleRaw != 0 {
		b.raw(s.Raw)
	}
	if has&SampleBranchStack != 0 {
		if err := e.branches(b, s); err != nil {
			return err
		}
	}
	if has&SampleRegsUser != 0 {
		if err := b.registers(s.UserRegs, e.attr.UserRegs); err != nil {
			return err
		}
	}
	if has&SampleStackUser != 0 {
		b.stack(s.UserStack)
	}
	put(SampleWeight|SampleWeightStruct, s.Weight)
	put(SampleDataSource, s.DataSource)
	put(SampleTransaction, s.Transaction)
	if has&SampleRegsIntr != 0 {
		if err := b.registers(s.IntrRegs, e.attr.IntrRegs); err != nil {
			return err
		}
	}
	put(SamplePhysAddr, s.PhysAddr)
	put(SampleCgroup, s.Cgroup)
	put(SampleDataPageSize, s.DataPageSize)
	put(SampleCodePageSize, s.CodePageSize)
	if has&SampleAux != 0 {
		b.u64(uint64(len(s.Aux)))
		b.bytes(s.Aux)
	}
	return nil
}

// raw appends data with its length, filled up so that the next field is aligned.
func (b *builder) raw(data []byte) {
	n := (len(data)+4+7)&^7 - 4
	b.u32(uint32(n))
	b.fixed(string(data), n)
}

// stack appends a copy of a stack: the room for it, its bytes, and how many they are.
func (b *builder) stack(data []byte) {
	room := (len(data) + 7) &^ 7
	b.u64(uint64(room))
	if room > 0 {
		b.fixed(string(data), room)
		b.u64(uint64(len(data)))
	}
}

func (b *builder) registers(r Regs, mask uint64) error {
	b.u64(uint64(r.ABI))
	if r.ABI == RegsNone {
		return nil
	}
	if len(r.Values) != bits.OnesCount64(mask) || r.Mask != mask {
		return fmt.Errorf("%d registers of the mask %#x, and the event has the mask %#x", len(r.Values), r.Mask, mask)
	}
	b.u64(r.Values...)
	return nil
}

func (e *Encoder) branches(b *builder, s *Sample) error {
	b.u64(uint64(len(s.Branches)))
	if e.attr.Branches&BranchHWIndex != 0 {
		b.u64(s.BranchIndex)
	}
	for _, branch := range s.Branches {
		b.u64(uint64(branch.From), uint64(branch.To), branch.Flags.word(e.big))
	}
	if e.attr.Branches&BranchCounters == 0 {
		return nil
	}
	if len(s.BranchCounts) != len(s.Branches) {
		return fmt.Errorf("%d branches with %d counts", len(s.Branches), len(s.BranchCounts))
	}
	b.u64(s.BranchCounts...)
	return nil
}

// word is the opposite of branchFlags.
func (f BranchFlags) word(big bool) uint64 {
	var w uint64
	at := uint(0)
	put := func(n uint, v uint64) {
		shift := at
		if big {
			shift = 64 - at - n
		}
		at += n
		w |= v & (1<<n - 1) << shift
	}
	for _, set := range []bool{f.Mispredicted, f.Predicted, f.InTransaction, f.Abort} {
		if set {
			put(1, 1)
		} else {
			put(1, 0)
		}
	}
	put(16, uint64(f.Cycles))
	put(4, uint64(f.Type))
	put(2, uint64(f.Spec))
	put(4, uint64(f.NewType))
	put(3, uint64(f.Privilege))
	return w
}

func (e *Encoder) read(b *builder, r Read) error {
	format := e.attr.Read
	group := format&ReadGroup != 0
	if !group && len(r.Values) != 1 {
		return fmt.Errorf("counts of %d events, and the event reads its own only", len(r.Values))
	}
	if group {
		b.u64(uint64(len(r.Values)))
	} else {
		b.u64(r.Values[0].Value)
	}
	if format&ReadTimeEnabled != 0 {
		b.u64(r.TimeEnabled)
	}
	if format&ReadTimeRunning != 0 {
		b.u64(r.TimeRunning)
	}
	for _, v := range r.Values {
		if group {
			b.u64(v.Value)
		}
		if format&ReadID != 0 {
			b.u64(v.Event)
		}
		if format&ReadLost != 0 {
			b.u64(v.Lost)
		}
	}
	return nil
}

// rare appends the records of rareBody. The kind is 0 for others.
func (e *Encoder) rare(b *builder, r Record) (kind Type, misc uint16, err error) {
	switch r := r.(type) {
	case *Reading:
		b.u32(r.OwnerPID, r.OwnerTID)
		err := e.read(b, r.Read)
		e.trailer(b, r.ID)
		return TypeRead, r.Misc, err
	case *Aux:
		b.u64(r.Offset, r.Size, r.Flags)
		e.trailer(b, r.ID)
		return TypeAux, r.Misc, nil
	case *ItraceStart:
		b.u32(r.OwnerPID, r.OwnerTID)
		e.trailer(b, r.ID)
		return TypeItraceStart, r.Misc, nil
	case *Switch:
		if r.Type == TypeSwitchCPUWide {
			b.u32(r.OtherPID, r.OtherTID)
		}
		e.trailer(b, r.ID)
		return r.Type, flag(r.Misc, miscSwitchOut, r.Out), nil
	case *Namespaces:
		b.u32(r.OwnerPID, r.OwnerTID)
		b.u64(uint64(len(r.Links)))
		for _, l := range r.Links {
			b.u64(l.Device, l.Inode)
		}
		e.trailer(b, r.ID)
		return TypeNamespaces, r.Misc, nil
	case *BPFEvent:
		b.u16(r.Kind)
		b.u16(r.Flags)
		b.u32(r.Program)
		b.bytes(r.Tag[:])
		e.trailer(b, r.ID)
		return TypeBPFEvent, r.Misc, nil
	case *TextPoke:
		return TypeTextPoke, r.Misc, e.textPoke(b, r)
	case *AuxOutputHWID:
		b.u64(r.Hardware)
		e.trailer(b, r.ID)
		return TypeAuxOutputHWID, r.Misc, nil
	case *CallchainDeferred:
		b.u64(r.Cookie, uint64(len(r.Callchain)))
		b.u64(r.Callchain...)
		e.trailer(b, r.ID)
		return TypeCallchainDeferred, r.Misc, nil
	}
	return 0, 0, nil
}

func (e *Encoder) textPoke(b *builder, r *TextPoke) error {
	if len(r.Old) > 0xffff || len(r.New) > 0xffff {
		return fmt.Errorf("%d and %d bytes of code", len(r.Old), len(r.New))
	}
	b.u64(uint64(r.Addr))
	b.u16(uint16(len(r.Old)))
	b.u16(uint16(len(r.New)))
	b.bytes(r.Old)
	b.bytes(r.New)
	b.align()
	e.trailer(b, r.ID)
	return nil
}

// unasked reports whether a bit for a build ID is one that a Decoder does not believe, and
// that may stay as it was.
func (e *Encoder) unasked(misc uint16) bool {
	return misc&miscMmapBuildID != 0 && e.attr.Flags&AttrBuildID == 0
}
