package buildid

import (
	"io"
	"math"
)

// The bounds of one search.
const (
	windowSize = 4096 // bytes of one read, at most
	headSize   = 1024 // bytes of the first read; few files have their notes further on
	maxReads   = 64   // reads, the first included
	maxRegions = 16   // note segments, and note sections
)

// An image is the ELF file as a search sees it: through a window on its start,
// which stays, and another one that moves. Positions count from the ELF header.
type image struct {
	r      io.ReaderAt
	base   uint64 // position of the ELF header in r
	head   window
	moving window
	reads  int
	err    error // why bytes that were asked for could not be read; the first time
}

// open looks at r from base on.
func (m *image) open(r io.ReaderAt, base uint64) {
	m.r, m.base, m.reads, m.err = r, base, 0, nil
	m.moving.size = 0
	m.fill(&m.head, 0, headSize)
}

// at returns the n bytes at pos, n being 1 to windowSize. It returns nil where
// the file ends before, the read failed or there were too many. The bytes are
// valid until the next call.
func (m *image) at(pos uint64, n int) []byte {
	if b := m.head.slice(pos, n); b != nil {
		return b
	}
	if b := m.moving.slice(pos, n); b != nil {
		return b
	}
	if m.spent() {
		return nil
	}
	m.fill(&m.moving, pos, windowSize)
	b := m.moving.slice(pos, n)
	if b == nil && m.err == nil {
		m.err = m.moving.err
	}
	return b
}

// spent reports whether a search has made all the reads that it may.
func (m *image) spent() bool { return m.reads >= maxReads }

// A window is a piece of the image in memory.
type window struct {
	pos   uint64
	size  int
	err   error // why it failed; the end of the file is no error
	bytes [windowSize]byte
}

// fill moves a window to the n bytes at pos. It gets less where the file ends or
// the read fails.
func (m *image) fill(w *window, pos uint64, n int) {
	w.pos, w.size, w.err = pos, 0, nil
	from := m.base + pos
	if from < pos || from > math.MaxInt64-windowSize {
		return
	}
	m.reads++
	w.size, w.err = m.r.ReadAt(w.bytes[:n], int64(from))
	if w.err == io.EOF {
		w.err = nil
	}
}

// slice returns the n bytes at pos, or nil if they are not all in the window.
func (w *window) slice(pos uint64, n int) []byte {
	i := pos - w.pos
	if pos < w.pos || i > uint64(w.size) || n > w.size-int(i) {
		return nil
	}
	return w.bytes[i : int(i)+n]
}
