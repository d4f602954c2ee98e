package perfdata

import (
	"errors"
	"fmt"
	"io"
)

// source is a file that records come from. A recording has one, or is a directory with one for
// each ring of the kernel's.
type source struct {
	name     string // for errors, "" of the only or first one
	cutter   cutter
	unpacked *unpacker // what compressed records hold
	end      int64     // where the records end, 0 where that is not known
	ended    bool

	newest  uint64 // time of a record that was read
	settled uint64 // newest when the last turn began
	turnEnd int64  // offset at which the turn ends
	turnFed int64  // bytes that were unpacked when it began
}

func (r *Reader) addSource(name string, src io.Reader, offset, end int64) {
	s := &source{name: name, cutter: cutter{src: src, pool: &r.pool, big: r.big}, end: end}
	s.cutter.start(offset)
	r.sources = append(r.sources, s)
}

// step reads one record, and returns it if it need not wait.
func (r *Reader) step() (Record, error) {
	if len(r.sources) == 1 {
		return r.stepSource(r.sources[0])
	}
	if r.turn == nil || r.turn.ended || r.turn.isTurnOver() {
		if r.turn = r.nextTurn(); r.turn == nil {
			return nil, r.endOfAll()
		}
	}
	rec, err := r.stepSource(r.turn)
	if err == nil {
		return rec, nil
	}
	// A damaged file does not end the others.
	r.turn.ended = true
	if err != io.EOF && r.damage == nil {
		r.damage = err
		if r.turn.name != "" {
			r.damage = fmt.Errorf("%s: %w", r.turn.name, err)
		}
	}
	return nil, nil
}

// endOfAll returns io.EOF, or the first damage of a file.
func (r *Reader) endOfAll() error {
	if r.damage != nil {
		return r.damage
	}
	return io.EOF
}

// turnSize is how many bytes of a file are read before it is another one's turn.
const turnSize = 64 << 10

func (s *source) isTurnOver() bool {
	return s.cutter.offset() >= s.turnEnd || s.fed()-s.turnFed >= turnSize
}

// fed is how many bytes were read of what was compressed.
func (s *source) fed() int64 {
	if s.unpacked == nil {
		return 0
	}
	return s.unpacked.cutter.offset()
}

// nextTurn chooses the file that is behind the others in time, and lets out what no file has
// older records than. It returns nil where all files are read.
//
// The records of a file are in order but for few, as interrupts write records between others: so
// a time is settled when a whole turn has gone by since. No file is ahead of the others by more
// than its turn, which bounds what waits.
func (r *Reader) nextTurn() *source {
	var next *source
	for _, s := range r.sources {
		if !s.ended && (next == nil || s.newest < next.newest) {
			next = s
		}
	}
	if next == nil {
		return nil
	}
	next.settled = next.newest
	next.turnEnd, next.turnFed = next.cutter.offset()+turnSize, next.fed()
	limit := ^uint64(0)
	for _, s := range r.sources {
		if !s.ended {
			limit = min(limit, s.settled)
		}
	}
	if !r.opts.FileOrder {
		r.queue.letOut(limit)
	}
	return next
}

// stepSource reads one record of a file, and returns it if it need not wait.
func (r *Reader) stepSource(s *source) (Record, error) {
	if s.unpacked != nil {
		rec, err := r.stepIn(s, &s.unpacked.cutter)
		if err == nil {
			return rec, nil
		}
		// The rest of a record may be in the next compressed one.
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("perf.data: in compressed records before offset %#x: %w", s.cutter.offset(), err)
		}
	}
	rec, err := r.stepIn(s, &s.cutter)
	if err == io.EOF {
		err = s.endOfRecords()
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("perf.data: offset %#x: %w", s.cutter.offset(), err)
	}
	return rec, err
}

// endOfRecords returns io.EOF where the records end, and another error where they should not.
func (s *source) endOfRecords() error {
	if u := s.unpacked; u != nil && u.cutter.to > u.cutter.from {
		return fmt.Errorf("in the middle of a compressed record: %w", io.ErrUnexpectedEOF)
	}
	if s.end > 0 && s.cutter.offset() < s.end {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}
