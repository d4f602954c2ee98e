// Package perfgen makes perf.data files of any bytes, for fuzz targets: every length is right and
// most fields are plausible, so that what mutates the bytes reaches what stands behind the
// checks of lengths. A few bytes at the end damage the file here and there.
package perfgen

import (
	"errors"
	"io"
	"math/bits"
	"reflect"

	"hallmark/perfdata"
)

// Recording is a file, and the other files of a directory.
type Recording struct {
	Head  []byte
	Parts [][]byte
}

// maxParts is how many files a directory has beside its head, at most.
const maxParts = 3

// Make makes a recording.
func Make(data []byte) Recording {
	d := &dice{data}
	form := d.byte()
	opts := perfdata.WriterOptions{Pipe: form&1 != 0, BigEndian: form&2 != 0, Compress: form&4 != 0, InOrder: form&8 != 0}
	parts := 0
	if form>>4 > 12 && !opts.Pipe {
		parts = 1 + d.below(maxParts)
	}
	events := d.events()
	var info perfdata.Info
	d.fill(reflect.ValueOf(&info).Elem())
	var rec Recording
	rec.Head = d.write(opts, info, events, parts == 0)
	for range parts {
		opts.Pipe = true
		rec.Parts = append(rec.Parts, recordsOf(d.write(opts, perfdata.Info{}, events, true)))
	}
	d.damage(rec.Head)
	for _, p := range rec.Parts {
		d.damage(p)
	}
	return rec
}

// recordsOf returns a stream without its head, with the records that report its events.
func recordsOf(stream []byte) []byte {
	const head = 16
	return stream[min(head, len(stream)):]
}

// knownFields are the PERF_SAMPLE_* that the package decodes.
const knownFields = perfdata.SampleWeightStruct<<1 - 1

// events makes a few events. Most agree on where their numbers are, as perf has them do.
func (d *dice) events() []*perfdata.Event {
	var all []*perfdata.Event
	common := perfdata.SampleType(d.bits(4)) & knownFields
	for i := range 1 + d.below(3) {
		e := &perfdata.Event{Name: d.name()}
		d.fill(reflect.ValueOf(&e.Attr).Elem())
		e.Attr.Fields = common
		if d.below(3) == 0 {
			e.Attr.Fields = perfdata.SampleType(d.bits(4)) & knownFields
		}
		if d.below(4) > 0 {
			e.Attr.Fields |= perfdata.SampleIdentifier | perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleIP
		}
		e.Attr.Type = uint32(d.below(8))
		e.Attr.Config = uint64(d.below(12))
		e.Attr.Flags |= perfdata.AttrSampleIDAll
		e.Attr.Read &= 1<<5 - 1
		e.Attr.Branches &= 1<<20 - 1
		e.Attr.UserRegs, e.Attr.IntrRegs = d.registers(), d.registers()
		for k := range d.below(3) {
			e.IDs = append(e.IDs, uint64(10*i+k+1))
		}
		all = append(all, e)
	}
	return all
}

// registers returns a mask: those that perf asks for with --call-graph dwarf, or a few.
func (d *dice) registers() uint64 {
	switch d.below(4) {
	case 0:
		return 1<<7 | 1<<8
	case 1:
		return 0xff0fff
	case 2:
		return 1<<33 - 1
	}
	return d.bits(1)
}

// memory is a file in memory.
type memory struct {
	data []byte
	at   int
}

func (m *memory) Write(b []byte) (int, error) {
	if grow := m.at + len(b) - len(m.data); grow > 0 {
		m.data = append(m.data, make([]byte, grow)...)
	}
	m.at += copy(m.data[m.at:], b)
	return len(b), nil
}

func (m *memory) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart || offset < 0 || offset > int64(len(m.data)) {
		return 0, errors.New("only within the file")
	}
	m.at = int(offset)
	return offset, nil
}

// write writes a file with as many records as there are bytes for.
func (d *dice) write(opts perfdata.WriterOptions, info perfdata.Info, events []*perfdata.Event, records bool) []byte {
	var file memory
	w, err := perfdata.NewWriter(&file, opts)
	if err != nil {
		return nil
	}
	w.Info = info
	var added []*perfdata.Event
	for _, e := range events {
		if w.AddEvent(e) == nil {
			added = append(added, e)
		}
	}
	// Each file of a directory has a share.
	for n := 2 + d.below(60); records && n > 0 && d.left(); n-- {
		var e *perfdata.Event
		if len(added) > 0 {
			e = added[d.below(len(added))]
		}
		// A record that cannot be encoded is left out.
		_ = w.Write(d.record(e), e)
	}
	if w.Close() != nil {
		return file.data
	}
	return file.data
}

// kinds are the records with fields that can be encoded.
var kinds = []func() perfdata.Record{
	func() perfdata.Record { return &perfdata.Sample{} }, func() perfdata.Record { return &perfdata.Sample{} },
	func() perfdata.Record { return &perfdata.Sample{} }, func() perfdata.Record { return &perfdata.Sample{} },
	func() perfdata.Record { return &perfdata.Mmap2{} }, func() perfdata.Record { return &perfdata.Mmap2{} },
	func() perfdata.Record { return &perfdata.Comm{} }, func() perfdata.Record { return &perfdata.Task{} },
	func() perfdata.Record { return &perfdata.Lost{} }, func() perfdata.Record { return &perfdata.Throttle{} },
	func() perfdata.Record { return &perfdata.Ksymbol{} }, func() perfdata.Record { return &perfdata.Cgroup{} },
	func() perfdata.Record { return &perfdata.Reading{} }, func() perfdata.Record { return &perfdata.Aux{} },
	func() perfdata.Record { return &perfdata.ItraceStart{} }, func() perfdata.Record { return &perfdata.Switch{} },
	func() perfdata.Record { return &perfdata.Namespaces{} }, func() perfdata.Record { return &perfdata.BPFEvent{} },
	func() perfdata.Record { return &perfdata.TextPoke{} }, func() perfdata.Record { return &perfdata.AuxOutputHWID{} },
	func() perfdata.Record { return &perfdata.CallchainDeferred{} }, func() perfdata.Record { return &perfdata.HeaderAttr{} },
	func() perfdata.Record { return &perfdata.EventUpdate{} }, func() perfdata.Record { return &perfdata.HeaderBuildID{} },
	func() perfdata.Record { return &perfdata.IDIndex{} }, func() perfdata.Record { return &perfdata.Auxtrace{} },
	func() perfdata.Record { return &perfdata.ThreadMap{} }, func() perfdata.Record { return &perfdata.CPUMap{} },
	func() perfdata.Record { return &perfdata.TimeConv{} }, func() perfdata.Record { return &perfdata.HeaderFeature{} },
	func() perfdata.Record { return &perfdata.Stat{} }, func() perfdata.Record { return &perfdata.StatRound{} },
}

// rawTypes is how many numbers of records there are, and a few more.
const rawTypes = 90

// record makes a record of an event, nil for none.
func (d *dice) record(e *perfdata.Event) perfdata.Record {
	switch n := d.byte(); {
	case n < 24: // bytes of any kind of record
		return &perfdata.Unknown{Type: perfdata.Type(d.below(rawTypes)), Misc: uint16(d.bits(2)), Data: d.bytes(200)}
	case n < 32:
		return &perfdata.Marker{Type: perfdata.TypeFinishedRound}
	default:
		r := kinds[int(n)%len(kinds)]()
		d.fill(reflect.ValueOf(r).Elem())
		d.agree(r, e)
		return r
	}
}

// agree makes what a record says of itself agree with its kind and its event.
func (d *dice) agree(r perfdata.Record, e *perfdata.Event) {
	if e == nil {
		return
	}
	event := uint64(0)
	if len(e.IDs) > 0 {
		event = e.IDs[d.below(len(e.IDs))]
	}
	switch r := r.(type) {
	case *perfdata.Sample:
		d.sample(r, e)
		r.Event = event
	case *perfdata.Mmap2:
		r.Type = perfdata.TypeMmap2
		if d.below(4) == 0 {
			r.Type, r.BuildID = perfdata.TypeMmap, nil
		}
		r.Prot |= 4
		r.Event = event
	case *perfdata.Lost:
		r.Type = []perfdata.Type{perfdata.TypeLost, perfdata.TypeLostSample}[d.below(2)]
	case *perfdata.Switch:
		r.Type = []perfdata.Type{perfdata.TypeSwitch, perfdata.TypeSwitchCPUWide}[d.below(2)]
	case *perfdata.Reading:
		r.Read = d.read(e)
	case *perfdata.HeaderAttr:
		r.Attr = e.Attr
	case *perfdata.Auxtrace:
		r.Size = uint64(d.below(3))
	case *perfdata.HeaderFeature:
		r.Feature = perfdata.Feature(d.below(40))
	}
}

func (d *dice) sample(s *perfdata.Sample, e *perfdata.Event) {
	s.Time = uint64(d.below(64)) // many are out of order
	s.Read = d.read(e)
	s.UserRegs, s.IntrRegs = d.regs(e.Attr.UserRegs), d.regs(e.Attr.IntrRegs)
	s.BranchCounts = s.BranchCounts[:0]
	for range s.Branches {
		s.BranchCounts = append(s.BranchCounts, d.number())
	}
}

// regs makes registers of a mask, or none.
func (d *dice) regs(mask uint64) perfdata.Regs {
	r := perfdata.Regs{ABI: perfdata.RegsABI(d.below(3)), Mask: mask}
	if r.ABI == perfdata.RegsNone {
		return perfdata.Regs{}
	}
	for range bits.OnesCount64(mask) {
		r.Values = append(r.Values, d.number())
	}
	return r
}

// read makes the counts of an event, or of its group.
func (d *dice) read(e *perfdata.Event) perfdata.Read {
	r := perfdata.Read{TimeEnabled: d.number(), TimeRunning: d.number()}
	n := 1
	if e.Attr.Read&perfdata.ReadGroup != 0 {
		n = d.below(4)
	}
	for range n {
		r.Values = append(r.Values, perfdata.ReadValue{Value: d.number(), Event: uint64(d.below(24)), Lost: uint64(d.byte())})
	}
	return r
}

// damage changes a few bytes, as many as there is input for: mostly none.
func (d *dice) damage(file []byte) {
	for n := d.below(6); n > 0 && len(file) > 0; n-- {
		at := d.bits(3) % uint64(len(file))
		if n%2 == 1 { // heads are most interesting
			at %= min(uint64(len(file)), 512)
		}
		file[at] ^= d.byte()
	}
}
