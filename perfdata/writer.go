package perfdata

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// WriterOptions say how a file is written.
type WriterOptions struct {
	// Pipe writes a stream, as perf record does into a pipe, instead of a file.
	Pipe bool
	// BigEndian writes numbers as a big-endian machine does.
	BigEndian bool
	// Compress compresses records with zstd.
	Compress bool
	// InOrder says that records will come in the order of their times. The Writer
	// marks rounds then (FINISHED_ROUND), and who reads the file need not hold all of
	// it. Otherwise they are marked by whoever writes Markers.
	InOrder bool
}

// A Writer writes a perf.data file that perf and Reader read: first the events, then
// records, and with Close what Info has.
type Writer struct {
	// Info is what the file says of the machine and the recording. In a stream it
	// stands before the first record, and in a file it is written by Close.
	Info Info

	opts    WriterOptions
	out     io.Writer
	file    io.WriteSeeker // nil in pipe mode
	events  []*Event
	encoder map[*Event]*Encoder
	own     *Encoder // for perf's own records
	buf     []byte   // records that are not written yet
	begun   bool
	pos     uint64 // of what was written
	ids     []section
	attrs   section
	data    section
	packer  *packer
	told    int // build IDs that a stream has already
	err     error

	first, last uint64 // times of samples
}

// NewWriter returns a Writer. A file needs an io.WriteSeeker, because its head is
// written last, and is written from the start of w.
func NewWriter(w io.Writer, opts WriterOptions) (*Writer, error) {
	p := &Writer{opts: opts, out: w, encoder: map[*Event]*Encoder{}}
	if !opts.Pipe {
		file, ok := w.(io.WriteSeeker)
		if !ok {
			return nil, errors.New("perf.data: a file cannot be written to what cannot seek")
		}
		p.file = file
	}
	var err error
	if p.own, err = NewEncoder(Attr{}, opts.BigEndian); err != nil {
		return nil, err
	}
	if opts.Compress {
		p.packer, err = newPacker(p.own)
	}
	return p, err
}

// AddEvent adds an event, before the first record. With several events, records
// must report which they are: each needs numbers, and SampleIdentifier among its
// fields (or SampleID, where the fields of all are the same).
func (w *Writer) AddEvent(e *Event) error {
	if w.begun {
		return errors.New("perf.data: an event after the first record")
	}
	enc, err := NewEncoder(e.Attr, w.opts.BigEndian)
	if err != nil {
		return fmt.Errorf("event %d: %w", len(w.events), err)
	}
	w.encoder[e] = enc
	w.events = append(w.events, e)
	return nil
}

// Events returns the events that were added.
func (w *Writer) Events() []*Event { return w.events }

// flushAt is how many bytes of records are written at once, and go into a round.
const flushAt = 1 << 20

// Write adds a record of an event; nil stands for the first one, and for none with
// records that perf writes itself. A record that cannot be encoded is an error that leaves
// the file as it was; an I/O error is returned by every later call.
func (w *Writer) Write(r Record, e *Event) error {
	if err := w.begin(); err != nil {
		return err
	}
	enc := w.own
	if e == nil && len(w.events) > 0 {
		e = w.events[0]
	}
	if e != nil {
		enc = w.encoder[e]
	}
	if enc == nil {
		return errors.New("perf.data: record of an event that was not added")
	}
	before := len(w.buf)
	var err error
	if w.buf, err = enc.Append(w.buf, r); err != nil {
		return fmt.Errorf("perf.data: %w", err)
	}
	if s, ok := r.(*Sample); ok {
		w.sampled(s)
	}
	// Markers, and all that is not for the order of times, are never compressed.
	if kind := Type(w.own.order.Uint32(w.buf[before:])); kind >= firstUserType && w.packer != nil {
		return w.aside(before)
	}
	if len(w.buf) < flushAt {
		return nil
	}
	return w.flush(w.opts.InOrder)
}

func (w *Writer) sampled(s *Sample) {
	if w.first == 0 || s.Time < w.first {
		w.first = s.Time
	}
	w.last = max(w.last, s.Time)
}

// aside writes the last record in buf, which is not to be compressed, behind the others.
func (w *Writer) aside(at int) error {
	rec := slices.Clone(w.buf[at:])
	w.buf = w.buf[:at]
	if err := w.flush(false); err != nil {
		return err
	}
	return w.put(rec)
}

// flush writes the records, and marks the end of a round.
func (w *Writer) flush(endRound bool) error {
	data := w.buf
	if w.packer != nil {
		var err error
		if data, err = w.packer.pack(data); err != nil {
			w.err = err
			return err
		}
	}
	w.buf = w.buf[:0]
	if err := w.put(data); err != nil || !endRound {
		return err
	}
	mark, err := w.own.Append(nil, &Marker{Type: TypeFinishedRound})
	if err != nil {
		return err
	}
	return w.put(mark)
}

func (w *Writer) put(data []byte) error {
	if w.err != nil {
		return w.err
	}
	n, err := w.out.Write(data)
	w.pos += uint64(n)
	w.err = err
	return err
}

// begin writes what stands before the records, once.
func (w *Writer) begin() error {
	if w.begun || w.err != nil {
		return w.err
	}
	w.begun = true
	if w.opts.Compress && w.Info.Compression == nil {
		w.Info.Compression = &Compression{Version: 1, Type: 1, Level: 1, MmapLen: flushAt + 1<<16}
	}
	if w.opts.Pipe {
		return w.beginStream()
	}
	return w.beginFile()
}

func (w *Writer) beginFile() error {
	if err := w.put(w.head()); err != nil {
		return err
	}
	size := 0
	for _, e := range w.events {
		b := builder{byteOrder: w.own.order}
		b.u64(e.IDs...)
		w.ids = append(w.ids, section{w.pos, uint64(len(b.buf))})
		if err := w.put(b.buf); err != nil {
			return err
		}
		size = max(size, e.Attr.size())
	}
	w.attrs.offset = w.pos
	for i, e := range w.events {
		b := builder{byteOrder: w.own.order}
		b.attr(e.Attr, size, w.opts.BigEndian)
		b.u64(w.ids[i].offset, w.ids[i].size)
		if err := w.put(b.buf); err != nil {
			return err
		}
	}
	w.attrs.size = w.pos - w.attrs.offset
	w.data.offset = w.pos
	return nil
}

// head returns the header of the file, as much of it as is known.
func (w *Writer) head() []byte {
	attrSize := uint64(attrSize0 + 16)
	if n := uint64(len(w.events)); n > 0 && w.attrs.size > 0 {
		attrSize = w.attrs.size / n
	}
	b := builder{byteOrder: w.own.order}
	b.u64(magic, fileHeaderSize, attrSize, w.attrs.offset, w.attrs.size, w.data.offset, w.data.size, 0, 0)
	var features [4]uint64
	if w.data.size > 0 {
		for _, f := range w.features() {
			features[f.number/64] |= 1 << (f.number % 64)
		}
	}
	b.u64(features[:]...)
	return b.buf
}

// beginStream writes events and features as records.
func (w *Writer) beginStream() error {
	b := builder{byteOrder: w.own.order}
	b.u64(magic, pipeHeaderSize)
	if err := w.put(b.buf); err != nil {
		return err
	}
	for _, e := range w.events {
		if err := w.putOwn(&HeaderAttr{Attr: e.Attr, IDs: e.IDs}); err != nil {
			return err
		}
	}
	for _, f := range w.features() {
		if f.number == FeatureBuildID || f.number == FeatureSampleTime {
			continue // known at the end; build IDs have records of their own
		}
		if err := w.putOwn(&HeaderFeature{Feature: f.number, Data: f.data}); err != nil {
			return err
		}
	}
	return w.putBuildIDs()
}

// putBuildIDs writes those that were not written yet.
func (w *Writer) putBuildIDs() error {
	for ; w.told < len(w.Info.BuildIDs); w.told++ {
		if err := w.putOwn(&w.Info.BuildIDs[w.told]); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) putOwn(r Record) error {
	b, err := w.own.Append(nil, r)
	if err != nil {
		return err
	}
	return w.put(b)
}

// Close writes what is left: the last records, and Info. It does not close the file.
func (w *Writer) Close() error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.flush(w.opts.InOrder); err != nil {
		return err
	}
	if w.opts.Pipe {
		return w.putBuildIDs()
	}
	return w.closeFile()
}

func (w *Writer) closeFile() error {
	w.data.size = w.pos - w.data.offset
	if w.Info.FirstSample == 0 && w.Info.LastSample == 0 {
		w.Info.FirstSample, w.Info.LastSample = w.first, w.last
	}
	features := w.features()
	at := w.pos + 16*uint64(len(features))
	table := builder{byteOrder: w.own.order}
	for _, f := range features {
		table.u64(at, uint64(len(f.data)))
		at += uint64(len(f.data))
	}
	for _, f := range features {
		table.bytes(f.data)
	}
	if err := w.put(table.buf); err != nil {
		return err
	}
	if _, err := w.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.put(w.head())
}
