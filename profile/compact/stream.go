package compact

import (
	"bufio"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// stream is the bytes of a profile, of which a window is in memory.
type stream struct {
	r      io.Reader
	window []byte
	from   int // where the unread part of the window begins
	base   int64
	err    error // of r
	check  func(read int64) error
}

const windowSize = 1 << 18

// offset returns the offset, uncompressed, of the byte that is read next.
func (s *stream) offset() int64 { return s.base + int64(s.from) }

// have reads on until n bytes are there, and reports whether they are. It takes memory for what
// has arrived, whatever n is.
func (s *stream) have(n int) bool {
	for len(s.window)-s.from < n {
		if s.err != nil {
			return false
		}
		s.more()
	}
	return true
}

func (s *stream) more() {
	if s.from > 0 && (s.from == len(s.window) || len(s.window) == cap(s.window)) {
		s.base += int64(s.from)
		s.window = s.window[:copy(s.window, s.window[s.from:])]
		s.from = 0
	}
	if len(s.window) == cap(s.window) {
		bigger := make([]byte, len(s.window), max(windowSize, 2*cap(s.window)))
		copy(bigger, s.window)
		s.window = bigger
	}
	n, err := s.r.Read(s.window[len(s.window):cap(s.window)])
	s.window = s.window[:len(s.window)+n]
	s.err = err
	if err := s.check(s.base + int64(len(s.window))); err != nil {
		s.err = err
	}
}

// ended reports whether there is nothing more.
func (s *stream) ended() bool { return !s.have(1) && s.err == io.EOF }

// counting counts what is read.
type counting struct {
	r io.Reader
	n atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// uncompressed returns what is in r, compressed by gzip or zstd or not at all, and what ends the
// reading.
func uncompressed(r io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	magic, _ := buffered.Peek(4)
	switch {
	case len(magic) >= 2 && string(magic[:2]) == "\x1f\x8b":
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, fmt.Errorf("decompressing profile: %w", err)
		}
		a := readAhead(z)
		return a, a.stop, nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("decompressing profile: %w", err)
		}
		a := readAhead(z)
		return a, func() { a.stop(); z.Close() }, nil
	}
	return buffered, func() {}, nil
}

// zstdWindow is the most memory that a file can have the decoder take: as the command zstd has
// it without --long.
const zstdWindow = 128 << 20

// ahead decompresses while what it has is decoded.
type ahead struct {
	full, free chan []byte
	quit, done chan struct{}
	block      []byte
	rest       []byte
	err        error // valid once full is closed
}

func readAhead(r io.Reader) *ahead {
	const blocks, size = 3, 1 << 17
	a := &ahead{full: make(chan []byte, blocks), free: make(chan []byte, blocks), quit: make(chan struct{}), done: make(chan struct{})}
	for range blocks {
		a.free <- make([]byte, size)
	}
	go a.run(r)
	return a
}

func (a *ahead) run(r io.Reader) {
	defer close(a.done)
	defer close(a.full)
	for {
		var block []byte
		select {
		case block = <-a.free:
		case <-a.quit:
			return
		}
		block = block[:cap(block)]
		n, err := 0, error(nil)
		for n < len(block) && err == nil {
			var more int
			more, err = r.Read(block[n:])
			n += more
		}
		if n > 0 {
			select {
			case a.full <- block[:n]:
			case <-a.quit:
				return
			}
		}
		if err != nil {
			a.err = err
			return
		}
	}
}

func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.block != nil {
			a.free <- a.block
			a.block = nil
		}
		block, ok := <-a.full
		if !ok {
			if a.err == nil {
				return 0, io.EOF
			}
			return 0, a.err
		}
		a.block, a.rest = block, block
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// stop ends the reading, and returns once nobody reads.
func (a *ahead) stop() {
	close(a.quit)
	<-a.done
}
