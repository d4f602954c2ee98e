package perfdata

import "fmt"

// An Event is one of the events that were recorded.
type Event struct {
	Attr Attr
	IDs  []uint64 // its numbers in records, one for each CPU or thread that it was opened on
	Name string   // as it was given to perf, "" when the file does not have it
	// Unit and Scale say what a count means, when the file says so.
	Unit  string
	Scale float64

	decoder *Decoder
	// refused is why its samples cannot be decoded.
	refused error
}

// events finds the event that a record is of.
type events struct {
	list  []*Event
	byID  map[uint64]*Event
	big   bool
	total int // numbers in byID that were given

	// Where in a sample, and before the end of another record, the number of the
	// event is, in bytes; -1 when records do not have it.
	sampleAt, trailerAt int

	asked bool // one of them asks for build IDs: perf has the one do so that reports mappings

	lastID uint64
	last   *Event
}

// maxIDs is the most numbers of events that are kept: events times CPUs.
const maxIDs = 8 << 20

func (s *events) add(e *Event) error {
	if s.total += len(e.IDs) + 1; s.total > maxIDs {
		return fmt.Errorf("more than %d numbers of events", maxIDs)
	}
	if s.byID == nil {
		s.byID = map[uint64]*Event{}
	}
	known := e.Attr
	known.Fields &= sampleKnown
	known.Read &= readKnown
	known.Branches &= branchKnown
	if _, err := NewAttrDecoder(e.Attr, s.big); err != nil {
		e.refused = err
	}
	var err error
	if e.decoder, err = NewAttrDecoder(known, s.big); err != nil {
		return err
	}
	s.ask(e)
	for _, id := range e.IDs {
		s.byID[id] = e
	}
	sample, trailer := idPositions(e.Attr)
	if len(s.list) == 0 {
		s.sampleAt, s.trailerAt = sample, trailer
	}
	if sample != s.sampleAt {
		s.sampleAt = -1
	}
	if trailer != s.trailerAt {
		s.trailerAt = -1
	}
	s.list = append(s.list, e)
	s.last = nil
	return nil
}

// ask has the records of all events with build IDs if one asks for them: what perf itself
// writes of mappings names no event, and is read as the first one's.
func (s *events) ask(e *Event) {
	if e.Attr.Flags&AttrBuildID != 0 && !s.asked {
		s.asked = true
		for _, other := range s.list {
			other.decoder.attr.Flags |= AttrBuildID
		}
	}
	if s.asked {
		e.decoder.attr.Flags |= AttrBuildID
	}
}

// idPositions says where records of an event have its number.
func idPositions(a Attr) (sample, trailer int) {
	sample, trailer = -1, -1
	switch {
	case a.Fields&SampleIdentifier != 0:
		sample, trailer = HeaderSize, 8
	case a.Fields&SampleID != 0:
		sample = HeaderSize + 8*count(a.Fields&(SampleIP|SampleTID|SampleTime|SampleAddr))
		trailer = 8 * count(a.Fields&(SampleID|SampleStreamID|SampleCPU))
	}
	if a.Flags&AttrSampleIDAll == 0 {
		trailer = -1
	}
	return sample, trailer
}

// of returns the event of a record, nil when it cannot be known. Records that perf
// made up itself have the number 0, or none, and the layout of the first event.
func (s *events) of(rec []byte) *Event {
	if len(s.list) == 0 {
		return nil
	}
	if len(s.list) == 1 {
		return s.list[0]
	}
	d := s.list[0].decoder
	at := s.sampleAt
	if d.kind(rec) != TypeSample {
		if s.trailerAt < 0 {
			return s.list[0]
		}
		at = len(rec) - s.trailerAt
	}
	if at < HeaderSize || at+8 > len(rec) {
		return nil
	}
	id := d.order().Uint64(rec[at:])
	if s.last == nil || id != s.lastID {
		s.lastID, s.last = id, s.byID[id]
	}
	if s.last == nil && id == 0 {
		return s.list[0]
	}
	return s.last
}

// decode decodes a record of the kernel. One that cannot be decoded is Malformed.
func (s *events) decode(rec []byte) (Record, *Event) {
	e := s.of(rec)
	if e == nil {
		return s.orphan(rec), nil
	}
	kind := e.decoder.kind(rec)
	if kind == TypeSample && e.refused != nil {
		return malformed(rec, e.refused, s.big), e
	}
	r, err := e.decoder.Decode(rec)
	if err != nil {
		return malformed(rec, err, s.big), e
	}
	return r, e
}

// orphan is a record of no event that is known.
func (s *events) orphan(rec []byte) Record {
	kind := Type(orderOf(s.big).Uint32(rec))
	return malformed(rec, &FormatError{Type: kind, Err: fmt.Errorf("of no event that is known (number %d)", s.lastID)}, s.big)
}

func malformed(rec []byte, err error, big bool) *Malformed {
	order := orderOf(big)
	return &Malformed{Type: Type(order.Uint32(rec)), Misc: order.Uint16(rec[4:]), Data: rec[HeaderSize:], Err: err}
}
