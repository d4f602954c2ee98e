package perfdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"hallmark/internal/cursor"
)

// ErrNotPerfData is what a Reader says of a file that is none of perf's.
var ErrNotPerfData = errors.New("not a perf.data file")

// ErrNotEnded is the problem of a file that perf record left when it was killed: its header is that
// of the beginning. All records that were written are there.
var ErrNotEnded = errors.New("perf record was not ended properly: the file has no size of its records, and no features")

// magic is "PERFILE2" as a number, which is written in the machine's byte order.
const magic = 0x32454c4946524550

// Sizes of the two headers: struct perf_file_header and struct
// perf_pipe_file_header of perf's tools/perf/util/header.h.
const (
	fileHeaderSize = 104
	pipeHeaderSize = 16
)

// section is a part of a file (struct perf_file_section).
type section struct{ offset, size uint64 }

// end returns where the section ends, 0 of one that has no size yet.
func (s section) end() int64 {
	if s.size == 0 {
		return 0
	}
	return int64(s.offset + s.size)
}

// fileHeader is struct perf_file_header.
type fileHeader struct {
	big      bool
	attrSize uint64 // of an attribute with the section of its IDs
	attrs    section
	data     section
	features [4]uint64 // a bit for each feature
}

// MagicSize is how many bytes HasMagic looks at.
const MagicSize = 8

// HasMagic reports whether a file or a stream that starts with these bytes is one of
// perf's.
func HasMagic(b []byte) bool {
	return len(b) >= MagicSize && (binary.LittleEndian.Uint64(b) == magic || binary.BigEndian.Uint64(b) == magic)
}

// HeadSize is how many bytes IsFile looks at.
const HeadSize = pipeHeaderSize

// IsFile reports whether what starts with these bytes is a file of perf's and no stream:
// it can only be read where any part of it can be had.
func IsFile(b []byte) bool {
	if len(b) < HeadSize {
		return false
	}
	_, size, err := parseMagic(b)
	return err == nil && size != pipeHeaderSize
}

// parseMagic reads the first bytes that both headers have in common.
func parseMagic(b []byte) (big bool, size uint64, err error) {
	switch {
	case binary.LittleEndian.Uint64(b) == magic:
		return false, binary.LittleEndian.Uint64(b[8:]), nil
	case binary.BigEndian.Uint64(b) == magic:
		return true, binary.BigEndian.Uint64(b[8:]), nil
	case string(b[:8]) == "PERFFILE":
		return false, 0, fmt.Errorf("%w: of a version of perf before 2.6.34", ErrNotPerfData)
	}
	return false, 0, ErrNotPerfData
}

func readFileHeader(r io.ReaderAt, big bool, size uint64) (fileHeader, error) {
	h := fileHeader{big: big}
	if size < fileHeaderSize {
		return h, fmt.Errorf("%w: header of %d bytes", ErrNotPerfData, size)
	}
	var b [fileHeaderSize]byte
	if n, err := r.ReadAt(b[:], 0); n < len(b) {
		return h, fmt.Errorf("perf.data header: %w", unexpected(err))
	}
	c := cursor.New(b[:], 0, big)
	c.Skip(16)
	h.attrSize = c.U64()
	h.attrs = section{c.U64(), c.U64()}
	h.data = section{c.U64(), c.U64()}
	c.Skip(16) // names of event types, of old versions
	for i := range h.features {
		h.features[i] = c.U64()
	}
	// A bitmap of longs: a big-endian machine of 32 bits has its halves the other way
	// round. Every perf since 2.6.34 writes a host name, by which its own reader decides.
	if big && h.features[0]>>featureHostname&1 == 0 && h.features[0]>>(32+featureHostname)&1 != 0 {
		for i, w := range h.features {
			h.features[i] = bits.RotateLeft64(w, 32)
		}
	}
	return h, nil
}

// unexpected is an end of file where there must be more.
func unexpected(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// maxSection is the most that is read of a section that is held in memory. The
// list of all build IDs of a large machine has a few hundred kilobytes.
const maxSection = 64 << 20

// check returns an error if a section goes beyond the end of the file.
func (s section) check(r io.ReaderAt) error {
	if s.size == 0 {
		return nil
	}
	last := s.offset + s.size - 1
	if last < s.offset || last > 1<<62 {
		return fmt.Errorf("offset %#x: section of %d bytes is too large", s.offset, s.size)
	}
	if n, err := r.ReadAt(make([]byte, 1), int64(last)); n == 0 && err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("offset %#x: section of %d bytes: %w", s.offset, s.size, err)
	}
	return nil
}

// load reads a whole section. It allocates as much as there is, not as much as the
// section claims.
func (s section) load(r io.ReaderAt) ([]byte, error) {
	if s.size > maxSection || s.offset > 1<<62 {
		return nil, fmt.Errorf("offset %#x: section of %d bytes is too large", s.offset, s.size)
	}
	b, err := io.ReadAll(io.NewSectionReader(r, int64(s.offset), int64(s.size)))
	if err == nil && uint64(len(b)) < s.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("offset %#x: section of %d bytes: %w", s.offset, s.size, err)
	}
	return b, nil
}

// readAttrs reads the attributes of all events, with the numbers of each.
func (h *fileHeader) readAttrs(r io.ReaderAt) ([]*Event, error) {
	if h.attrSize < attrSize0+16 {
		return nil, fmt.Errorf("offset 0x10: attributes of %d bytes", h.attrSize)
	}
	data, err := h.attrs.load(r)
	if err != nil {
		return nil, fmt.Errorf("attributes of events: %w", err)
	}
	var events []*Event
	var held uint64 // bytes of numbers, that sections may share
	for at := uint64(0); at+h.attrSize <= uint64(len(data)); at += h.attrSize {
		one := data[at : at+h.attrSize]
		c := cursor.New(one[:len(one)-16], int64(h.attrs.offset+at), h.big)
		e := &Event{Attr: readAttr(&c, h.big)}
		if c.Err() != nil {
			return events, fmt.Errorf("attributes of event %d: %w", len(events), c.Err())
		}
		c = cursor.New(one[len(one)-16:], 0, h.big)
		ids := section{c.U64(), c.U64()}
		if held += ids.size; held > maxSection {
			return events, fmt.Errorf("numbers of event %d: more than %d bytes of them", len(events), maxSection)
		}
		b, err := ids.load(r)
		if err != nil {
			return events, fmt.Errorf("numbers of event %d: %w", len(events), err)
		}
		for c = cursor.New(b, 0, h.big); c.Len() >= 8; {
			e.IDs = append(e.IDs, c.U64())
		}
		events = append(events, e)
	}
	return events, nil
}
