package perfdata

import (
	"fmt"

	"hallmark/internal/cursor"
)

// HeaderAttr is an event with its numbers (HEADER_ATTR), at the start of a stream.
type HeaderAttr struct {
	Attr Attr
	IDs  []uint64
}

// EventUpdate says more of an event (EVENT_UPDATE).
type EventUpdate struct {
	Kind  uint64 // PERF_EVENT_UPDATE__*: UpdateUnit …
	Event uint64 // one of its numbers
	Data  []byte
}

// Kinds of EventUpdate.
const (
	UpdateUnit  = 0
	UpdateScale = 1
	UpdateName  = 2
	UpdateCPUs  = 3
)

// HeaderBuildID is the build ID of a file that samples were in (HEADER_BUILD_ID).
type HeaderBuildID struct {
	Misc    uint16 // Mode: of the kernel, of user space
	PID     int32  // of the virtual machine's process, -1 for this machine
	BuildID []byte
	Name    string // path, "[kernel.kallsyms]", "[vdso]" …
}

// IDIndex reports the numbers of events on which CPU or thread each was opened (ID_INDEX).
type IDIndex struct{ Entries []IDIndexEntry }

// IDIndexEntry is struct id_index_entry.
type IDIndexEntry struct {
	ID, Index uint64
	CPU, TID  uint64 // -1 for any
}

// Auxtrace stands before a piece of the AUX area, which is passed over (AUXTRACE).
type Auxtrace struct {
	Size, Offset, Reference uint64
	Index, TID, CPU         uint32
}

// ThreadMap names threads that were recorded (THREAD_MAP).
type ThreadMap struct{ Threads []ThreadName }

// ThreadName is a thread with the name of its program, at most 15 bytes.
type ThreadName struct {
	TID  uint64
	Name string
}

// TimeConv turns the processor's time stamp counter into times (TIME_CONV):
// Zero + ticks·Mult >> Shift.
type TimeConv struct {
	Shift, Mult, Zero, Cycles, Mask uint64
	CapZero, CapShort               bool
}

// HeaderFeature is a feature section (HEADER_FEATURE), at the start of a stream.
type HeaderFeature struct {
	Feature Feature
	Data    []byte
}

// Marker is a record without content: FINISHED_ROUND, FINISHED_INIT.
type Marker struct{ Type Type }

// Stat is a count (STAT).
type Stat struct {
	Event                   uint64
	CPU, Thread             uint32
	Value, Enabled, Running uint64
}

// StatRound ends a turn of counts (STAT_ROUND).
type StatRound struct{ Kind, Time uint64 }

func (*HeaderAttr) record()    {}
func (*EventUpdate) record()   {}
func (*HeaderBuildID) record() {}
func (*IDIndex) record()       {}
func (*Auxtrace) record()      {}
func (*ThreadMap) record()     {}
func (*TimeConv) record()      {}
func (*HeaderFeature) record() {}
func (*Marker) record()        {}
func (*Stat) record()          {}
func (*StatRound) record()     {}

// decodeUser decodes what perf writes itself. These records have no trailer.
func decodeUser(c *cursor.Cursor, kind Type, misc uint16, rec []byte, big bool) Record {
	switch kind {
	case TypeHeaderAttr:
		r := &HeaderAttr{Attr: readAttr(c, big)}
		for c.Len() >= 8 {
			r.IDs = append(r.IDs, c.U64())
		}
		return r
	case TypeEventUpdate:
		r := &EventUpdate{Kind: c.U64(), Event: c.U64()}
		r.Data = c.Bytes(uint64(c.Len()))
		return r
	case TypeHeaderBuildID:
		return headerBuildID(c, misc)
	case TypeFinishedRound, TypeFinishedInit:
		return &Marker{Type: kind}
	case TypeIDIndex:
		return idIndex(c)
	case TypeAuxtrace:
		return &Auxtrace{Size: c.U64(), Offset: c.U64(), Reference: c.U64(), Index: c.U32(), TID: c.U32(), CPU: c.U32()}
	case TypeThreadMap:
		return threadMap(c)
	case TypeCPUMap:
		return cpuMap(c)
	case TypeTimeConv:
		return timeConv(c)
	case TypeHeaderFeature:
		r := &HeaderFeature{Feature: Feature(c.U64())}
		r.Data = c.Bytes(uint64(c.Len()))
		return r
	case TypeStat:
		return &Stat{Event: c.U64(), CPU: c.U32(), Thread: c.U32(), Value: c.U64(), Enabled: c.U64(), Running: c.U64()}
	case TypeStatRound:
		return &StatRound{Kind: c.U64(), Time: c.U64()}
	}
	return &Unknown{Type: kind, Misc: misc, Data: rec[HeaderSize:]}
}

// headerBuildID reads struct perf_record_header_build_id. Before Linux 5.12 its size was
// not given and shorter ones were filled up with zeros.
func headerBuildID(c *cursor.Cursor, misc uint16) *HeaderBuildID {
	r := &HeaderBuildID{Misc: misc, PID: int32(c.U32())}
	id := c.Bytes(20)
	size := c.U8()
	c.Skip(3)
	if misc&miscBuildIDSize == 0 {
		size = 20
	}
	if size > 20 {
		c.Fail("build ID of %d bytes", size)
	}
	if c.Err() == nil {
		r.BuildID = append([]byte(nil), id[:size]...)
	}
	r.Name = c.String()
	return r
}

func idIndex(c *cursor.Cursor) *IDIndex {
	r := &IDIndex{}
	n := c.U64()
	if n > uint64(c.Len()/32) {
		c.Fail("%d numbers of events in %d bytes", n, c.Len())
		return r
	}
	for range n {
		r.Entries = append(r.Entries, IDIndexEntry{ID: c.U64(), Index: c.U64(), CPU: c.U64(), TID: c.U64()})
	}
	return r
}

func threadMap(c *cursor.Cursor) *ThreadMap {
	r := &ThreadMap{}
	n := c.U64()
	if n > uint64(c.Len()/24) {
		c.Fail("%d threads in %d bytes", n, c.Len())
		return r
	}
	for range n {
		r.Threads = append(r.Threads, ThreadName{TID: c.U64(), Name: untilNUL(c.Bytes(16))})
	}
	return r
}

// timeConv reads struct perf_record_time_conv, whose last three fields came later.
func timeConv(c *cursor.Cursor) *TimeConv {
	r := &TimeConv{Shift: c.U64(), Mult: c.U64(), Zero: c.U64()}
	if c.Len() >= 18 {
		r.Cycles, r.Mask = c.U64(), c.U64()
		r.CapZero, r.CapShort = c.U8() != 0, c.U8() != 0
	}
	return r
}

// apply adds what the record says of an event.
func (u *EventUpdate) apply(e *Event) error {
	c := cursor.New(u.Data, 0, e.decoder.big)
	switch u.Kind {
	case UpdateUnit:
		e.Unit = untilNUL(u.Data)
	case UpdateName:
		e.Name = untilNUL(u.Data)
	case UpdateScale:
		e.Scale = float64frombits(c.U64())
	}
	if c.Err() != nil {
		return fmt.Errorf("update of event %d: %w", u.Event, c.Err())
	}
	return nil
}
