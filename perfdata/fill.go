package perfdata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Filled is what FillBuildIDs wrote.
type Filled struct {
	Mappings int // records that got a build ID
	// Compressed counts records with others in them, which are left as they are.
	Compressed int
	// Listed is false where the file has no place for the list: the recording was not
	// ended properly. Its mappings got IDs nevertheless.
	Listed bool
}

// FillBuildIDs copies a file or a stream with more build IDs: in each MMAP2 record that
// has none, the one that of returns, nil for none; and those of more at the end of the
// file's list of build IDs; of a stream, in records before all others. Everything else is
// copied byte for byte.
//
// A record has a build ID in place of the file's device, inode and generation, so no
// record changes its size; those of less than 16 bytes are in the list only, because a
// Decoder does not believe them. The list is written anew behind everything else.
func FillBuildIDs(w io.Writer, r io.ReaderAt, of func(*Mmap2) []byte, more []HeaderBuildID) (Filled, error) {
	var b [pipeHeaderSize]byte
	if n, err := r.ReadAt(b[:], 0); n < len(b) {
		return Filled{}, fmt.Errorf("%w: %w", ErrNotPerfData, unexpected(err))
	}
	big, size, err := parseMagic(b[:])
	if err != nil {
		return Filled{}, err
	}
	f := &filler{out: bufio.NewWriterSize(w, 1<<18), big: big, of: of, decoder: Decoder{big: big}}
	if size == pipeHeaderSize {
		err = f.stream(r, more)
	} else {
		err = f.file(r, size, more)
	}
	return f.filled, errors.Join(err, f.out.Flush())
}

// FillRecords is FillBuildIDs for a file of a directory that has records alone. head is the
// file with the directory's head, which reports the byte order.
func FillRecords(w io.Writer, r, head io.ReaderAt, of func(*Mmap2) []byte) (Filled, error) {
	var b [pipeHeaderSize]byte
	if n, err := head.ReadAt(b[:], 0); n < len(b) {
		return Filled{}, fmt.Errorf("%w: %w", ErrNotPerfData, unexpected(err))
	}
	big, _, err := parseMagic(b[:])
	if err != nil {
		return Filled{}, err
	}
	f := &filler{out: bufio.NewWriterSize(w, 1<<18), big: big, of: of, decoder: Decoder{big: big}}
	err = f.records(io.NewSectionReader(r, 0, math.MaxInt64), 0, 0)
	return f.filled, errors.Join(err, f.out.Flush())
}

type filler struct {
	out     *bufio.Writer
	big     bool
	of      func(*Mmap2) []byte
	decoder Decoder
	filled  Filled
	rec     []byte
}

func (f *filler) stream(r io.ReaderAt, more []HeaderBuildID) error {
	in := io.NewSectionReader(r, 0, math.MaxInt64)
	if _, err := io.CopyN(f.out, in, pipeHeaderSize); err != nil {
		return err
	}
	// A reader of a stream looks for symbols as it comes: the list comes first.
	list, err := f.appendList(nil, more)
	if err != nil {
		return err
	}
	if _, err := f.out.Write(list); err != nil {
		return err
	}
	f.filled.Listed = true
	return f.records(in, pipeHeaderSize, 0)
}

// appendList appends records of build IDs.
func (f *filler) appendList(to []byte, more []HeaderBuildID) ([]byte, error) {
	own, err := NewEncoder(Attr{}, f.big)
	for i := 0; i < len(more) && err == nil; i++ {
		to, err = own.Append(to, &more[i])
	}
	return to, err
}

// copyTo copies a part of the file.
func (f *filler) copyTo(r io.ReaderAt, from, size uint64) error {
	n, err := io.Copy(f.out, io.NewSectionReader(r, int64(from), int64(size)))
	if err == nil && uint64(n) < size {
		err = fmt.Errorf("offset %#x: %w", from+uint64(n), io.ErrUnexpectedEOF)
	}
	return err
}

func (f *filler) file(r io.ReaderAt, size uint64, more []HeaderBuildID) error {
	h, err := readFileHeader(r, f.big, size)
	if err != nil {
		return err
	}
	data := h.data
	if data.offset < fileHeaderSize || data.offset > 1<<62 || data.size > 1<<62 {
		return fmt.Errorf("%w: records at offset %#x, %d bytes", ErrNotPerfData, data.offset, data.size)
	}
	f.filled.Listed = data.size > 0
	var features []byte
	grows := false
	if f.filled.Listed && len(more) > 0 {
		if features, grows, err = f.features(r, &h, more); err != nil {
			return err
		}
	}
	if err := f.head(r, data.offset, grows); err != nil {
		return err
	}
	if data.size == 0 {
		return f.records(io.NewSectionReader(r, int64(data.offset), math.MaxInt64-int64(data.offset)), data.offset, 0)
	}
	if err := f.records(io.NewSectionReader(r, int64(data.offset), int64(data.size)), data.offset, data.size); err != nil {
		return err
	}
	if features != nil {
		_, err := f.out.Write(features)
		return err
	}
	_, err = io.Copy(f.out, io.NewSectionReader(r, int64(data.offset+data.size), math.MaxInt64-int64(data.offset+data.size)))
	return err
}

// featuresAt is where struct perf_file_header has the bitmap of features.
const featuresAt = 72

// head copies what stands before the records, and says there that there is a list.
func (f *filler) head(r io.ReaderAt, size uint64, grows bool) error {
	var b [fileHeaderSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return err
	}
	if grows {
		order := orderOf(f.big)
		order.PutUint64(b[featuresAt:], order.Uint64(b[featuresAt:])|1<<FeatureBuildID)
	}
	if _, err := f.out.Write(b[:]); err != nil {
		return err
	}
	return f.copyTo(r, fileHeaderSize, size-fileHeaderSize)
}

// features returns what is to stand behind the records: the table of sections, the
// sections as they are, and the list.
func (f *filler) features(r io.ReaderAt, h *fileHeader, more []HeaderBuildID) (all []byte, grows bool, err error) {
	order := orderOf(f.big)
	var b [8]byte
	if _, err := r.ReadAt(b[:], featuresAt); err != nil {
		return nil, false, err
	}
	if order.Uint64(b[:]) != h.features[0] {
		return nil, false, errors.New("recordings of 32-bit big-endian machines cannot be changed")
	}
	count, before := 0, 0
	for i, word := range h.features {
		count += bits.OnesCount64(word)
		if i == 0 {
			before = bits.OnesCount64(word & (1<<FeatureBuildID - 1))
		}
	}
	old := section{h.data.offset + h.data.size, 16 * uint64(count)}
	table, err := old.load(r)
	if err != nil {
		return nil, false, fmt.Errorf("features: %w", err)
	}
	behind, err := readRest(r, old.offset+old.size)
	if err != nil {
		return nil, false, err
	}
	var list []byte
	if grows = h.features[0]>>FeatureBuildID&1 == 0; grows {
		table = slices.Insert(table, 16*before, make([]byte, 16)...)
	} else {
		entry := table[16*before:]
		if list, err = (section{order.Uint64(entry), order.Uint64(entry[8:])}).load(r); err != nil {
			return nil, false, fmt.Errorf("list of build IDs: %w", err)
		}
	}
	shift := uint64(len(table)) - old.size
	for at := 0; at < len(table); at += 16 {
		if offset := order.Uint64(table[at:]); offset >= old.offset+old.size {
			order.PutUint64(table[at:], offset+shift)
		}
	}
	if list, err = f.appendList(list, more); err != nil {
		return nil, false, err
	}
	order.PutUint64(table[16*before:], old.offset+uint64(len(table)+len(behind)))
	order.PutUint64(table[16*before+8:], uint64(len(list)))
	return slices.Concat(table, behind, list), grows, nil
}

// readRest reads all that is behind the table of sections.
func readRest(r io.ReaderAt, from uint64) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(r, int64(from), maxSection+1))
	if err == nil && len(b) > maxSection {
		err = fmt.Errorf("offset %#x: more than %d bytes of features", from, maxSection)
	}
	return b, err
}

// records copies records, to the end of what is there. It is an error if they end before so many
// bytes. If size is 0 they may end anywhere, and what there is of the last one is copied.
func (f *filler) records(from io.Reader, offset, size uint64) error {
	in := bufio.NewReaderSize(from, 1<<18)
	end := offset + size
	for {
		n, err := f.record(in)
		if err == io.EOF && (size == 0 || offset == end) {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) && size == 0 {
			_, err := f.out.Write(f.rec)
			return err
		}
		if err != nil {
			return fmt.Errorf("perf.data: offset %#x: %w", offset, unexpected(err))
		}
		offset += n
	}
}

// record copies one record, and what is behind it that belongs to it.
func (f *filler) record(in *bufio.Reader) (size uint64, err error) {
	f.rec = slices.Grow(f.rec[:0], 1<<16)[:HeaderSize]
	n, err := io.ReadFull(in, f.rec)
	if err != nil {
		f.rec = f.rec[:n]
		return 0, err
	}
	length := recordSize(f.rec, f.big)
	if length < HeaderSize {
		return 0, fmt.Errorf("%w: %d bytes", errTooSmall, length)
	}
	f.rec = f.rec[:length]
	if n, err = io.ReadFull(in, f.rec[HeaderSize:]); err != nil {
		f.rec = f.rec[:HeaderSize+n]
		return 0, unexpected(err)
	}
	f.edit()
	if _, err := f.out.Write(f.rec); err != nil {
		return 0, err
	}
	behind := f.behind()
	if behind > math.MaxInt64 {
		return 0, fmt.Errorf("%d bytes behind a record", behind)
	}
	f.rec = f.rec[:0]
	if _, err := io.CopyN(f.out, in, int64(behind)); err != nil {
		return 0, unexpected(err)
	}
	return uint64(length) + behind, nil
}

// behind is how many bytes belong to a record and are not in it.
func (f *filler) behind() uint64 {
	order := orderOf(f.big)
	switch body := f.rec[HeaderSize:]; {
	case f.decoder.kind(f.rec) == TypeAuxtrace && len(body) >= 8:
		return order.Uint64(body)
	case f.decoder.kind(f.rec) == TypeHeaderTracingData && len(body) >= 4:
		return (uint64(order.Uint32(body)) + 7) &^ 7
	}
	return 0
}

// identityAt is where an MMAP2 record has what identifies its file.
const identityAt = HeaderSize + 4 + 4 + 8 + 8 + 8

// edit gives a mapping its build ID.
func (f *filler) edit() {
	switch f.decoder.kind(f.rec) {
	case TypeCompressed, TypeCompressed2:
		f.filled.Compressed++
		return
	case TypeMmap2:
	default:
		return
	}
	got, err := f.decoder.Decode(f.rec)
	m, ok := got.(*Mmap2)
	if err != nil || !ok || m.BuildID != nil {
		return
	}
	id := f.of(m)
	if len(id) < leastUnasked || len(id) > 20 {
		return // short ones are not believed there
	}
	field := f.rec[identityAt : identityAt+24]
	clear(field)
	field[0] = byte(len(id))
	copy(field[4:], id)
	order := orderOf(f.big)
	order.PutUint16(f.rec[4:], order.Uint16(f.rec[4:])|miscMmapBuildID)
	f.filled.Mappings++
}
