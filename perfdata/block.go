package perfdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// blockSize is how much of a file is read at once. The largest record has 64 KiB
// less one byte.
const blockSize = 256 << 10

// A block is a part of a file in memory, as long as records in it wait for their turn.
type block struct {
	buf  []byte
	base int64 // offset of buf[0]
	uses int
}

// blocks recycles blocks.
type blocks struct {
	free []*block
	live int // in use
}

func (s *blocks) get(base int64) *block {
	s.live++
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		b.base, b.uses = base, 1
		return b
	}
	return &block{buf: make([]byte, blockSize), base: base, uses: 1}
}

func (s *blocks) release(b *block) {
	if b.uses--; b.uses == 0 {
		s.live--
		s.free = append(s.free, b)
	}
}

// cutter cuts a stream of bytes into records.
type cutter struct {
	src      io.Reader
	pool     *blocks
	big      bool
	cur      *block
	from, to int // what of cur is not cut yet
	size     int // of the record that next returned
}

// errTooSmall stops reading: where the next record begins is not known.
var errTooSmall = errors.New("record is shorter than its header")

// next returns where in which block the next record is. The error is io.EOF when
// there is none at all, and io.ErrUnexpectedEOF when only a part of one is left,
// for which the next call looks again.
func (c *cutter) next() (b *block, at int, err error) {
	for c.to-c.from < HeaderSize || c.to-c.from < c.sizeAt(c.from) {
		if err := c.fill(); err != nil {
			if errors.Is(err, io.EOF) && c.to > c.from {
				err = io.ErrUnexpectedEOF
			}
			return nil, 0, err
		}
	}
	at = c.from
	if c.size = c.sizeAt(at); c.size < HeaderSize {
		return nil, 0, fmt.Errorf("%w: %d bytes", errTooSmall, c.size)
	}
	c.from += c.size
	return c.cur, at, nil
}

func (c *cutter) sizeAt(at int) int { return recordSize(c.cur.buf[at:], c.big) }

func recordSize(rec []byte, big bool) int {
	if big {
		return int(binary.BigEndian.Uint16(rec[6:]))
	}
	return int(binary.LittleEndian.Uint16(rec[6:]))
}

// offset is where the record that was cut last began, or where cutting stopped.
func (c *cutter) offset() int64 {
	if c.cur == nil {
		return 0
	}
	return c.cur.base + int64(c.from)
}

// start sets the offset of the first byte.
func (c *cutter) start(offset int64) {
	c.cur = c.pool.get(offset)
	c.from, c.to = 0, 0
}

// fill reads more, into another block where this one has no room for a record.
func (c *cutter) fill() error {
	if len(c.cur.buf)-c.from < 1<<16 {
		b := c.pool.get(c.cur.base + int64(c.from))
		n := copy(b.buf, c.cur.buf[c.from:c.to])
		c.pool.release(c.cur)
		c.cur, c.from, c.to = b, 0, n
	}
	for range 100 {
		n, err := c.src.Read(c.cur.buf[c.to:])
		c.to += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// skip passes over n bytes that are no record.
func (c *cutter) skip(n uint64) error {
	have := min(n, uint64(c.to-c.from))
	c.from += int(have)
	if n -= have; n == 0 {
		return nil
	}
	base := c.cur.base + int64(c.to)
	if n > uint64(1)<<62 {
		return io.ErrUnexpectedEOF
	}
	skipped, err := c.discard(int64(n))
	c.pool.release(c.cur)
	c.start(base + skipped)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// discard passes over n bytes, by seeking where that is possible. The last byte is
// read, to know that it is there.
func (c *cutter) discard(n int64) (int64, error) {
	s, ok := c.src.(*io.SectionReader)
	if !ok {
		return io.CopyN(io.Discard, c.src, n)
	}
	if _, err := s.Seek(n-1, io.SeekCurrent); err != nil {
		return 0, err
	}
	var last [1]byte
	if _, err := io.ReadFull(s, last[:]); err != nil {
		return 0, err
	}
	return n, nil
}
