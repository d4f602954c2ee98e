package perfdata

import (
	"fmt"

	"hallmark/internal/cursor"
)

// complete passes over what follows a record outside of it: traces of the AUX area
// and descriptions of tracepoints are larger than a record can be.
func (r *Reader) complete(c *cutter, kind Type, rec []byte) ([]byte, error) {
	body := cursor.New(rec[HeaderSize:], 0, r.big)
	var behind uint64
	switch kind {
	case TypeAuxtrace:
		behind = body.U64()
	case TypeHeaderTracingData:
		behind = (uint64(body.U32()) + 7) &^ 7
	}
	if behind == 0 {
		return rec, nil
	}
	// Skipping may reuse the block that the record is in.
	rec = append([]byte(nil), rec...)
	if err := c.skip(behind); err != nil {
		return nil, fmt.Errorf("%d bytes behind the %v record: %w", behind, kind, err)
	}
	return rec, nil
}

// take learns from a record that perf wrote itself. The error is one that no record
// behind it can be understood after.
func (r *Reader) take(rec Record) error {
	switch rec := rec.(type) {
	case *HeaderAttr:
		return r.takeAttr(rec)
	case *HeaderBuildID:
		if len(r.info.BuildIDs) < maxBuildIDs {
			r.info.BuildIDs = append(r.info.BuildIDs, *rec)
		}
	case *HeaderFeature:
		if err := r.info.learn(rec.Feature, rec.Data, r.big, r.events.list); err != nil {
			r.problem(err)
		}
	case *EventUpdate:
		if e := r.events.byID[rec.Event]; e != nil {
			if err := rec.apply(e); err != nil {
				r.problem(err)
			}
		}
	}
	return nil
}

// maxBuildIDs is the most that is kept of build IDs that come among records.
const maxBuildIDs = 1 << 18

// takeAttr adds an event of a stream. A file has its events at its head; perf
// writes no such record there.
func (r *Reader) takeAttr(rec *HeaderAttr) error {
	if !r.pipe {
		return nil
	}
	for _, e := range r.events.list {
		if e.Attr == rec.Attr && len(e.IDs) > 0 && len(rec.IDs) > 0 && e.IDs[0] == rec.IDs[0] {
			return nil // given twice
		}
	}
	if err := r.events.add(&Event{Attr: rec.Attr, IDs: rec.IDs}); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return nil
}

// unpack gives what is in a compressed record to the unpacker of its file, which the next
// steps read from.
func (r *Reader) unpack(from *source, kind Type, rec []byte) (Record, error) {
	data := rec[HeaderSize:]
	if kind == TypeCompressed2 {
		c := cursor.New(data, 0, r.big)
		data = c.Bytes(c.U64())
		if c.Err() != nil {
			return malformed(rec, &FormatError{Type: kind, Err: c.Err()}, r.big), nil
		}
	}
	if from.unpacked == nil {
		var err error
		if from.unpacked, err = newUnpacker(&r.pool, r.big); err != nil {
			return nil, err
		}
	}
	from.unpacked.feed(data)
	return nil, nil
}
