package store

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"hallmark/internal/cursor"
	"hallmark/internal/seekable"
)

// A segment is a part of the catalogue: records in the order of their keys, in seekable zstd, which has a checksum for each
// frame. No record is in two frames: the rest of one is zero where the next record does not fit. A segment stays in memory
// as it is in the store.
type segment struct {
	name   string // the last part of its key in the store
	reader *seekable.Reader
	size   int64    // bytes in memory
	firsts [][]byte // key of the first record of each frame
	last   []byte   // key of the last record
}

// Bounds of segments.
const (
	segmentContent = 4 << 20  // bytes of records of one that is written
	maxSegment     = 64 << 20 // bytes of one that is read, and of its records
)

// openSegment opens a segment that has these bytes, after it has read all of it.
func openSegment(name string, b []byte, frames *seekable.Cache) (*segment, error) {
	r, err := seekable.NewReader(bytes.NewReader(b), int64(len(b)), name, frames)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxSegment {
		return nil, fmt.Errorf("%s: %w: %d bytes of records", name, seekable.ErrFormat, r.Size())
	}
	g := &segment{name: name, reader: r, size: int64(len(b))}
	for i := range r.Frames() {
		if err := g.check(i); err != nil {
			return nil, err
		}
	}
	if len(g.firsts) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no records", name, seekable.ErrFormat)
	}
	return g, nil
}

// check notes what is in a frame.
func (g *segment) check(i int) error {
	frame, err := g.reader.Frame(i)
	if err != nil {
		return err
	}
	if len(frame) > seekable.FrameSize { // each lookup unpacks one
		return fmt.Errorf("%s: %w: frame %d has %d bytes", g.name, seekable.ErrFormat, i, len(frame))
	}
	c := cursor.New(frame, 0, false)
	last := g.last
	for n := 0; c.Len() > 0; n++ {
		r := readRecord(&c)
		if len(r.key) == 0 && n > 0 {
			break
		}
		if _, err := idOf(r.key); err != nil || bytes.Compare(r.key, last) <= 0 {
			c.Fail("the key %x does not come behind %x, or is none", r.key[:min(len(r.key), 20)], last[:min(len(last), 20)])
			break
		}
		if n == 0 {
			g.firsts = append(g.firsts, slices.Clone(r.key))
		}
		last = r.key
	}
	if c.Err() != nil {
		return fmt.Errorf("%s: %w: frame %d: %w", g.name, seekable.ErrFormat, i, c.Err())
	}
	g.last = slices.Clone(last) // and not the whole frame
	return nil
}

// A run is segments whose records are in the order of their keys.
type run []*segment

func (r run) size() (n int64) {
	for _, g := range r {
		n += g.size
	}
	return n
}

// find returns the record with a key.
func (r run) find(key []byte) (record, bool) {
	n := sort.Search(len(r), func(i int) bool { return bytes.Compare(r[i].last, key) >= 0 })
	if n == len(r) {
		return record{}, false
	}
	firsts := r[n].firsts
	i := sort.Search(len(firsts), func(i int) bool { return bytes.Compare(firsts[i], key) > 0 }) - 1
	if i < 0 {
		return record{}, false
	}
	w := walk{run: r[n : n+1], frame: i}
	for w.next() {
		if c := bytes.Compare(w.key, key); c >= 0 {
			return w.record, c == 0
		}
	}
	return record{}, false
}

// A walker goes through records in the order of their keys.
type walker interface {
	// next goes to the next record, and reports whether there is one.
	next() bool
	// at returns the record. Nobody may change its bytes.
	at() record
}

func (r record) at() record { return r }

// A walk goes through a run.
type walk struct {
	record
	run   run
	frame int // the next one of the first segment
	c     cursor.Cursor
}

func (w *walk) next() bool {
	for {
		if w.c.Len() > 0 {
			if w.record = readRecord(&w.c); len(w.key) > 0 {
				return true
			}
		}
		for len(w.run) > 0 && w.frame == len(w.run[0].firsts) {
			w.run, w.frame = w.run[1:], 0
		}
		if len(w.run) == 0 {
			return false
		}
		frame, err := w.run[0].reader.Frame(w.frame)
		if err != nil { // these bytes in memory were sound
			panic(err)
		}
		w.c = cursor.New(frame, 0, false)
		w.frame++
	}
}

// A list goes through records in memory.
type list struct {
	record
	rest []record
}

func (l *list) next() bool {
	if len(l.rest) == 0 {
		return false
	}
	l.record, l.rest = l.rest[0], l.rest[1:]
	return true
}

// A merge goes through several walkers as one. Of records with one key it has that of the first of these.
type merge struct {
	record
	walkers []walker
}

// newMerge returns a merge of records, which are sorted and come first, and of runs.
func newMerge(records []record, runs []run) *merge {
	m := &merge{walkers: []walker{&list{rest: records}}}
	for _, r := range runs {
		m.walkers = append(m.walkers, &walk{run: r})
	}
	m.walkers = slices.DeleteFunc(m.walkers, func(w walker) bool { return !w.next() })
	return m
}

func (m *merge) next() bool {
	if len(m.walkers) == 0 {
		return false
	}
	m.record = m.walkers[0].at()
	for _, w := range m.walkers[1:] {
		if r := w.at(); bytes.Compare(r.key, m.key) < 0 {
			m.record = r
		}
	}
	ended := 0
	for _, w := range m.walkers {
		if bytes.Equal(w.at().key, m.key) && !w.next() {
			ended++
		}
	}
	if ended > 0 {
		m.walkers = slices.DeleteFunc(m.walkers, func(w walker) bool { return bytes.Equal(w.at().key, m.key) })
	}
	return true
}

// writeSegments calls put with the bytes of segments that have the records, one segment after another.
func writeSegments(records walker, put func(b []byte) error) error {
	var content []byte
	flush := func() error {
		if len(content) == 0 {
			return nil
		}
		var out bytes.Buffer
		if _, err := seekable.Compress(&out, bytes.NewReader(content)); err != nil {
			return err
		}
		content = content[:0]
		return put(bytes.Clone(out.Bytes()))
	}
	for records.next() {
		r := records.at().append(nil)
		if used := len(content) % seekable.FrameSize; used > 0 && used+len(r) > seekable.FrameSize {
			content = append(content, make([]byte, seekable.FrameSize-used)...)
		}
		if content = append(content, r...); len(content) >= segmentContent {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
