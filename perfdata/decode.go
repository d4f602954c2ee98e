package perfdata

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// A Decoder decodes the records of events that were all opened with the same
// attributes. Records it returns are its own and valid until the next Decode. It
// is not for use by several goroutines at once.
type Decoder struct {
	attr    Attr
	big     bool
	trailed SampleType // what records that are no samples end with

	sample   Sample
	mmap     Mmap2
	comm     Comm
	task     Task
	lost     Lost
	throttle Throttle
	context  Switch
	ksymbol  Ksymbol
	cgroup   Cgroup
}

// NewDecoder returns a Decoder for samples that have the given fields, of events
// with sample_id_all on a machine of this byte order. It fails when there are
// fields among them that it does not know.
func NewDecoder(fields SampleType) (*Decoder, error) {
	return NewAttrDecoder(Attr{Fields: fields, Flags: AttrSampleIDAll | AttrBuildID}, bigEndian)
}

// NewAttrDecoder returns a Decoder for records of events with these attributes,
// written by a machine of the given byte order. Of the attributes it uses Fields,
// Read, Branches, UserRegs, IntrRegs, AttrSampleIDAll and AttrBuildID, and fails when
// one of the first three has bits that change the records in a way it does not know.
func NewAttrDecoder(attr Attr, big bool) (*Decoder, error) {
	if unknown := attr.Fields &^ sampleKnown; unknown != 0 {
		return nil, fmt.Errorf("perf sample fields %#x are not supported", uint64(unknown))
	}
	if unknown := attr.Read &^ readKnown; unknown != 0 && attr.Fields&SampleRead != 0 {
		return nil, fmt.Errorf("perf read format %#x is not supported", uint64(unknown))
	}
	if unknown := attr.Branches &^ branchKnown; unknown != 0 && attr.Fields&SampleBranchStack != 0 {
		return nil, fmt.Errorf("perf branch sample type %#x is not supported", uint64(unknown))
	}
	d := &Decoder{attr: attr, big: big}
	if attr.Flags&AttrSampleIDAll != 0 {
		d.trailed = attr.Fields & originFields
	}
	return d, nil
}

// Size returns the size in bytes of the record at the start of data, and
// whether data holds it whole.
func Size(data []byte) (n int, whole bool) {
	if len(data) < HeaderSize {
		return 0, false
	}
	n = int(binary.NativeEndian.Uint16(data[6:]))
	return n, n >= HeaderSize && n <= len(data)
}

// TypeOf returns the kind of the record at the start of data, which has at
// least HeaderSize bytes.
func TypeOf(data []byte) Type { return Type(binary.NativeEndian.Uint32(data)) }

// Time returns the time of a whole record without decoding it, 0 when it has none.
func (d *Decoder) Time(rec []byte) uint64 {
	at := d.timeAt(rec)
	if at < HeaderSize || at+8 > len(rec) {
		return 0
	}
	return d.order().Uint64(rec[at:])
}

// Event returns the number of the event that a whole record names, without decoding it. It is 0 for samples, and
// where there is none.
func (d *Decoder) Event(rec []byte) uint64 {
	if len(rec) < HeaderSize || d.kind(rec) == TypeSample || d.trailed&SampleID == 0 {
		return 0
	}
	at := len(rec) - 8*count(d.trailed&^(SampleTID|SampleTime))
	if at < HeaderSize {
		return 0
	}
	return d.order().Uint64(rec[at:])
}

func (d *Decoder) order() binary.ByteOrder {
	if d.big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

func (d *Decoder) timeAt(rec []byte) int {
	if len(rec) < HeaderSize {
		return -1
	}
	if d.kind(rec) == TypeSample {
		if d.attr.Fields&SampleTime == 0 {
			return -1
		}
		return HeaderSize + 8*count(d.attr.Fields&(SampleIdentifier|SampleIP|SampleTID))
	}
	if d.trailed&SampleTime == 0 {
		return -1
	}
	return len(rec) - 8*count(d.trailed&^SampleTID)
}

// kind is TypeOf in the Decoder's byte order.
func (d *Decoder) kind(rec []byte) Type { return Type(d.order().Uint32(rec)) }

// count returns how many of these fields, of 8 bytes each, there are.
func count(fields SampleType) int { return bits.OnesCount64(uint64(fields)) }

// Decode decodes one whole record, header included (see Size). The error is a
// *FormatError.
func (d *Decoder) Decode(rec []byte) (Record, error) {
	if len(rec) < HeaderSize {
		return nil, &FormatError{Err: fmt.Errorf("%d bytes are no header", len(rec))}
	}
	order := d.order()
	kind, misc, size := Type(order.Uint32(rec)), order.Uint16(rec[4:]), int(order.Uint16(rec[6:]))
	if size != len(rec) {
		return nil, &FormatError{Type: kind, Err: fmt.Errorf("header says %d bytes, there are %d", size, len(rec))}
	}
	c := cursor.New(rec, 0, d.big)
	c.Skip(HeaderSize)
	r := d.body(&c, kind, misc, rec)
	if c.Err() != nil {
		return nil, &FormatError{Type: kind, Err: c.Err()}
	}
	return r, nil
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

func (d *Decoder) body(c *cursor.Cursor, kind Type, misc uint16, rec []byte) Record {
	switch kind {
	case TypeSample:
		return d.decodeSample(c, misc)
	case TypeMmap, TypeMmap2:
		return d.decodeMmap(c, kind, misc, rec)
	case TypeComm:
		d.comm = Comm{OwnerPID: c.U32(), OwnerTID: c.U32(), Exec: misc&miscCommExec != 0, Name: c.String()}
		d.comm.ID = d.trailer(c, rec, misc)
		return &d.comm
	case TypeFork, TypeExit:
		t := Task{Exited: kind == TypeExit}
		t.ChildPID, t.ParentPID, t.ChildTID, t.ParentTID = c.U32(), c.U32(), c.U32(), c.U32()
		t.At = c.U64()
		t.ID = d.trailer(c, rec, misc)
		d.task = t
		return &d.task
	case TypeLost:
		d.lost = Lost{Type: kind, Of: c.U64(), Count: c.U64()}
		d.lost.ID = d.trailer(c, rec, misc)
		return &d.lost
	case TypeLostSample:
		d.lost = Lost{Type: kind, Count: c.U64()}
		d.lost.ID = d.trailer(c, rec, misc)
		return &d.lost
	case TypeThrottle, TypeUnthrottle:
		d.throttle = Throttle{Ended: kind == TypeUnthrottle, At: c.U64(), Of: c.U64(), From: c.U64()}
		d.throttle.ID = d.trailer(c, rec, misc)
		return &d.throttle
	case TypeKsymbol:
		d.ksymbol = Ksymbol{Addr: addr.Abs(c.U64()), Size: c.U32(), Kind: c.U16(), Flags: c.U16()}
		d.ksymbol.Unregistered = d.ksymbol.Flags&1 != 0
		d.ksymbol.Name = c.String()
		d.ksymbol.ID = d.trailer(c, rec, misc)
		return &d.ksymbol
	case TypeCgroup:
		d.cgroup = Cgroup{Cgroup: c.U64(), Path: c.String()}
		d.cgroup.ID = d.trailer(c, rec, misc)
		return &d.cgroup
	}
	if r := d.rareBody(c, kind, misc, rec); r != nil {
		return r
	}
	return decodeUser(c, kind, misc, rec, d.big)
}

func (d *Decoder) decodeMmap(c *cursor.Cursor, kind Type, misc uint16, rec []byte) Record {
	m := Mmap2{Type: kind, Owner: c.U32(), Thread: c.U32()}
	m.Start, m.Size, m.Offset = addr.Abs(c.U64()), c.U64(), addr.Offset(c.U64())
	if kind == TypeMmap2 {
		if misc&miscMmapBuildID == 0 || !d.buildID(c, &m) {
			m.Major, m.Minor, m.Inode, m.Generation = c.U32(), c.U32(), c.U64(), c.U64()
		}
		m.Prot, m.Flags = c.U32(), c.U32()
	} else if misc&miscMmapData == 0 {
		m.Prot = protExec
	}
	m.Name = c.String()
	m.ID = d.trailer(c, rec, misc)
	d.mmap = m
	return &d.mmap
}

const protExec = 4 // PROT_EXEC of mmap(2)

// leastUnasked is the size of the shortest build ID (bytes) that is believed in a
// recording that did not ask for any.
const leastUnasked = 16

// buildID reads a build ID, which stands in place of device and inode where a bit of the
// header says so; false if device and inode are there nevertheless.
//
// While another recording asks for build IDs the kernel sets the bit in those that do not
// ask as well: perf_event_mmap_output of kernel/events/core.c (6.18) sets it in what all
// events share. Without asking, the bit comes from perf inject, and from this. The first
// byte is the size then, or the device's major number, which is below 16 for disks, or
// above 20.
func (d *Decoder) buildID(c *cursor.Cursor, m *Mmap2) bool {
	start := c.Pos()
	n, unused := c.U8(), c.Bytes(3)
	asked := d.attr.Flags&AttrBuildID != 0
	if !asked && len(unused) == 3 && (n < leastUnasked || n > 20 || [3]byte(unused) != [3]byte{}) {
		c.SeekTo(uint64(start))
		return false
	}
	b := c.Bytes(20)
	switch {
	case n > 20:
		c.Fail("build ID of %d bytes", n)
	case b != nil:
		m.BuildID = append([]byte(nil), b[:n]...)
	}
	return true
}

// trailer reads the sample_id at the end of a record that is not a sample.
func (d *Decoder) trailer(c *cursor.Cursor, rec []byte, misc uint16) ID {
	size := 8 * count(d.trailed)
	if size > len(rec)-c.Pos() {
		c.Fail("%d bytes left where %d say who, when and where", len(rec)-c.Pos(), size)
		return ID{}
	}
	c.SeekTo(uint64(len(rec) - size))
	id := ID{Misc: misc}
	if d.trailed&SampleTID != 0 {
		id.PID, id.TID = c.U32(), c.U32()
	}
	if d.trailed&SampleTime != 0 {
		id.Time = c.U64()
	}
	if d.trailed&SampleID != 0 {
		id.Event = c.U64()
	}
	if d.trailed&SampleStreamID != 0 {
		id.Stream = c.U64()
	}
	if d.trailed&SampleCPU != 0 {
		id.CPU = c.U32()
		c.Skip(4)
	}
	if d.trailed&SampleIdentifier != 0 {
		if n := c.U64(); d.trailed&SampleID == 0 {
			id.Event = n
		}
	}
	return id
}
