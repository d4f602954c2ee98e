package perfdata

import (
	"encoding/binary"
	"fmt"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// SampleType says which fields a sample has, PERF_SAMPLE_* of the kernel.
type SampleType uint64

// The fields that a Decoder understands.
const (
	SampleIP        SampleType = 1 << 0
	SampleTID       SampleType = 1 << 1
	SampleTime      SampleType = 1 << 2
	SampleCallchain SampleType = 1 << 5
	SampleID        SampleType = 1 << 6
	SampleCPU       SampleType = 1 << 7
	SamplePeriod    SampleType = 1 << 8
	SampleCgroup    SampleType = 1 << 21

	sampleKnown = SampleIP | SampleTID | SampleTime | SampleCallchain | SampleID | SampleCPU | SamplePeriod | SampleCgroup
)

// A Decoder decodes the records of events that were all opened with the same
// sample type, with sample_id_all, on a machine of this byte order. Records it
// returns are its own and valid until the next Decode. It is not for use by
// several goroutines at once.
type Decoder struct {
	fields SampleType

	sample   Sample
	mmap     Mmap2
	comm     Comm
	task     Task
	lost     Lost
	throttle Throttle
	ksymbol  Ksymbol
	cgroup   Cgroup
	unknown  Unknown
}

// NewDecoder returns a Decoder for samples that have the given fields. It fails
// when there are fields among them that it does not know.
func NewDecoder(fields SampleType) (*Decoder, error) {
	if unknown := fields &^ sampleKnown; unknown != 0 {
		return nil, fmt.Errorf("perf sample fields %#x are not supported", uint64(unknown))
	}
	return &Decoder{fields: fields}, nil
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
	if d.fields&SampleTime == 0 || at < HeaderSize || at+8 > len(rec) {
		return 0
	}
	return binary.NativeEndian.Uint64(rec[at:])
}

func (d *Decoder) timeAt(rec []byte) int {
	if len(rec) < HeaderSize {
		return -1
	}
	if TypeOf(rec) == TypeSample {
		return HeaderSize + 8*d.count(SampleIP|SampleTID)
	}
	return len(rec) - 8*d.count(SampleTime|SampleID|SampleCPU)
}

// count returns how many of these fields, of 8 bytes each, there are.
func (d *Decoder) count(fields SampleType) int {
	n := 0
	for have := d.fields & fields; have != 0; have &= have - 1 {
		n++
	}
	return n
}

// Decode decodes one whole record, header included (see Size). The error is a
// *FormatError.
func (d *Decoder) Decode(rec []byte) (Record, error) {
	if n, whole := Size(rec); !whole || n != len(rec) {
		return nil, &FormatError{Err: fmt.Errorf("header says %d bytes, there are %d", n, len(rec))}
	}
	kind, misc := TypeOf(rec), binary.NativeEndian.Uint16(rec[4:])
	c := cursor.New(rec, 0, bigEndian)
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
		return d.decodeSample(c)
	case TypeMmap, TypeMmap2:
		return d.decodeMmap(c, kind, misc, rec)
	case TypeComm:
		d.comm = Comm{OwnerPID: c.U32(), OwnerTID: c.U32(), Exec: misc&miscCommExec != 0, Name: c.String()}
		d.comm.ID = d.trailer(c, rec)
		return &d.comm
	case TypeFork, TypeExit:
		t := Task{Exited: kind == TypeExit}
		t.ChildPID, t.ParentPID, t.ChildTID, t.ParentTID = c.U32(), c.U32(), c.U32(), c.U32()
		c.Skip(8) // time, which the trailer has too
		t.ID = d.trailer(c, rec)
		d.task = t
		return &d.task
	case TypeLost:
		c.Skip(8) // the event's number
		d.lost = Lost{Count: c.U64()}
		d.lost.ID = d.trailer(c, rec)
		return &d.lost
	case TypeLostSample:
		d.lost = Lost{Count: c.U64()}
		d.lost.ID = d.trailer(c, rec)
		return &d.lost
	case TypeThrottle, TypeUnthrottle:
		d.throttle = Throttle{ID: d.trailer(c, rec), Ended: kind == TypeUnthrottle}
		return &d.throttle
	case TypeKsymbol:
		d.ksymbol = Ksymbol{Addr: addr.Abs(c.U64()), Size: c.U32()}
		c.Skip(2) // what kind of code
		d.ksymbol.Unregistered = c.U16()&1 != 0
		d.ksymbol.Name = c.String()
		d.ksymbol.ID = d.trailer(c, rec)
		return &d.ksymbol
	case TypeCgroup:
		d.cgroup = Cgroup{Cgroup: c.U64(), Path: c.String()}
		d.cgroup.ID = d.trailer(c, rec)
		return &d.cgroup
	}
	d.unknown = Unknown{Type: kind, Data: rec[HeaderSize:]}
	return &d.unknown
}

// decodeSample reads the fields in the order that perf_output_sample of
// kernel/events/core.c writes them in.
func (d *Decoder) decodeSample(c *cursor.Cursor) Record {
	s := &d.sample
	chain := s.Callchain[:0]
	*s = Sample{}
	if d.fields&SampleIP != 0 {
		s.IP = addr.Abs(c.U64())
	}
	if d.fields&SampleTID != 0 {
		s.PID, s.TID = c.U32(), c.U32()
	}
	if d.fields&SampleTime != 0 {
		s.Time = c.U64()
	}
	if d.fields&SampleID != 0 {
		s.Event = c.U64()
	}
	if d.fields&SampleCPU != 0 {
		s.CPU = c.U32()
		c.Skip(4)
	}
	if d.fields&SamplePeriod != 0 {
		s.Period = c.U64()
	}
	if d.fields&SampleCallchain != 0 {
		n := c.U64()
		if n > uint64(c.Len()/8) {
			c.Fail("call chain of %d entries in %d bytes", n, c.Len())
			n = 0
		}
		for range n {
			chain = append(chain, c.U64())
		}
	}
	s.Callchain = chain
	if d.fields&SampleCgroup != 0 {
		s.Cgroup = c.U64()
	}
	return s
}

func (d *Decoder) decodeMmap(c *cursor.Cursor, kind Type, misc uint16, rec []byte) Record {
	m := Mmap2{Owner: c.U32()}
	c.Skip(4) // the thread
	m.Start, m.Size, m.Offset = addr.Abs(c.U64()), c.U64(), addr.Offset(c.U64())
	if kind == TypeMmap2 {
		if misc&miscMmapBuildID != 0 {
			m.BuildID = buildID(c)
		} else {
			m.Major, m.Minor, m.Inode, m.Generation = c.U32(), c.U32(), c.U64(), c.U64()
		}
		m.Prot, m.Flags = c.U32(), c.U32()
	} else if misc&(1<<13) == 0 { // PERF_RECORD_MISC_MMAP_DATA is not set: executable
		m.Prot = protExec
	}
	m.Name = c.String()
	m.ID = d.trailer(c, rec)
	d.mmap = m
	return &d.mmap
}

const protExec = 4 // PROT_EXEC of mmap(2)

// buildID reads the 24 bytes that stand in place of device and inode.
func buildID(c *cursor.Cursor) []byte {
	n := c.U8()
	c.Skip(3)
	b := c.Bytes(20)
	if n > 20 {
		c.Fail("build ID of %d bytes", n)
		return nil
	}
	if b == nil {
		return nil
	}
	return append([]byte(nil), b[:n]...)
}

// trailer reads the sample_id at the end of a record that is not a sample.
func (d *Decoder) trailer(c *cursor.Cursor, rec []byte) ID {
	size := 8 * d.count(SampleTID|SampleTime|SampleID|SampleCPU)
	if size > len(rec)-c.Pos() {
		c.Fail("%d bytes left where %d say who, when and where", len(rec)-c.Pos(), size)
		return ID{}
	}
	c.SeekTo(uint64(len(rec) - size))
	var id ID
	if d.fields&SampleTID != 0 {
		id.PID, id.TID = c.U32(), c.U32()
	}
	if d.fields&SampleTime != 0 {
		id.Time = c.U64()
	}
	if d.fields&SampleID != 0 {
		id.Event = c.U64()
	}
	if d.fields&SampleCPU != 0 {
		id.CPU = c.U32()
		c.Skip(4)
	}
	return id
}
