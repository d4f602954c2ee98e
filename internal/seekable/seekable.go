// Package seekable keeps a file compressed so that any part of it can be read without the rest.
//
// The format is the "Zstandard Seekable Format" 0.1.0 of the zstd project: frames that stand for
// themselves, of [FrameSize] bytes of content each but the last, and a skippable frame behind
// them with their sizes. Every program for zstd decompresses it.
package seekable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// FrameSize is how many bytes of content a frame has that Compress writes.
const FrameSize = 256 << 10

const (
	skippableMagic = 0x184D2A5E
	seekMagic      = 0x8F92EAB1
	headerSize     = 8        // of a skippable frame
	footerSize     = 9        // number of frames, descriptor, magic
	maxFrame       = 16 << 20 // bytes of content of a frame that a Reader takes
	maxFrames      = 1 << 24
)

// ErrFormat says that something is not of the format, or damaged. It arrives wrapped.
var ErrFormat = errors.New("not a sound seekable zstd file")

var encoders = sync.OnceValue(func() *zstd.Encoder {
	// Each encoder keeps room for two windows: a larger one than a frame finds nothing more.
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(FrameSize), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err) // constant options
	}
	return e
})

var decoders = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxFrame), zstd.WithDecoderMaxWindow(maxFrame))
	if err != nil {
		panic(err)
	}
	return d
})

// piece is a frame on its way through Compress.
type piece struct {
	content, frame []byte
	done           chan struct{}
}

// Compress writes the content of r to w, with as many processors as there are, and returns how
// many bytes it has.
func Compress(w io.Writer, r io.Reader) (size int64, err error) {
	queue := make(chan *piece, runtime.GOMAXPROCS(0))
	read := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		defer close(queue)
		read <- split(r, queue, stop)
	}()
	var table []byte
	for p := range queue {
		<-p.done
		if err != nil {
			continue
		}
		size += int64(len(p.content))
		table = binary.LittleEndian.AppendUint32(table, uint32(len(p.frame)))
		table = binary.LittleEndian.AppendUint32(table, uint32(len(p.content)))
		if _, err = w.Write(p.frame); err != nil {
			close(stop)
		}
	}
	if err != nil {
		return size, err
	}
	if err := <-read; err != nil {
		return size, err
	}
	_, err = w.Write(seekTable(table))
	return size, err
}

// split reads pieces, and has them compressed while it goes on.
func split(r io.Reader, queue chan<- *piece, stop <-chan struct{}) error {
	for {
		p := &piece{content: make([]byte, FrameSize), done: make(chan struct{})}
		n, err := io.ReadFull(r, p.content)
		p.content = p.content[:n]
		if n > 0 {
			go func() {
				p.frame = encoders().EncodeAll(p.content, make([]byte, 0, n/2))
				close(p.done)
			}()
			select {
			case queue <- p:
			case <-stop:
				return nil
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return err
		}
	}
}

// seekTable returns the skippable frame with the sizes of the frames.
func seekTable(table []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(table)+footerSize))
	b = append(b, table...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(table)/8))
	b = append(b, 0)
	return binary.LittleEndian.AppendUint32(b, seekMagic)
}

// A Cache keeps decompressed frames, of one or several files. It may be used by several
// goroutines at once.
type Cache struct {
	max int64 // bytes

	mu    sync.Mutex
	size  int64
	kept  map[frameKey]*kept
	first *kept // used last
	last  *kept
}

type frameKey struct {
	name  string
	frame int
}

type kept struct {
	key        frameKey
	content    []byte
	next, prev *kept
}

// NewCache returns a Cache of at most max bytes.
func NewCache(max int64) *Cache { return &Cache{max: max, kept: map[frameKey]*kept{}} }

func (c *Cache) get(k frameKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.kept[k]
	if e == nil {
		return nil
	}
	c.unlink(e)
	c.push(e)
	return e.content
}

func (c *Cache) put(k frameKey, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[k] != nil || int64(len(content)) > c.max {
		return
	}
	e := &kept{key: k, content: content}
	c.kept[k] = e
	c.push(e)
	for c.size += int64(len(content)); c.size > c.max; {
		old := c.last
		c.unlink(old)
		delete(c.kept, old.key)
		c.size -= int64(len(old.content))
	}
}

func (c *Cache) push(e *kept) {
	e.prev, e.next = nil, c.first
	if c.first != nil {
		c.first.prev = e
	} else {
		c.last = e
	}
	c.first = e
}

func (c *Cache) unlink(e *kept) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		c.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		c.last = e.prev
	}
}

// Reader reads the content of a compressed file. Its methods may be called by several
// goroutines at once.
type Reader struct {
	r     io.ReaderAt
	name  string
	cache *Cache

	at      []int64 // where each frame starts in the file, and where the last one ends
	content []int64 // the same in the content
}

// NewReader returns a Reader of the size bytes of r. The name is that of the content in the
// cache, which may be nil.
func NewReader(r io.ReaderAt, size int64, name string, cache *Cache) (*Reader, error) {
	damaged := func(msg string) error { return fmt.Errorf("%s: %w: %s", name, ErrFormat, msg) }
	if size < headerSize+footerSize {
		return nil, damaged("it is too short")
	}
	var footer [footerSize]byte
	if err := readFull(r, footer[:], size-footerSize); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(footer[5:]) != seekMagic {
		return nil, damaged("no seek table at its end")
	}
	n := int64(binary.LittleEndian.Uint32(footer[:]))
	entry := int64(8)
	if footer[4]&0x80 != 0 {
		entry += 4 // a checksum, which the frames have too
	}
	length := n*entry + footerSize
	if n > maxFrames || size < headerSize+length {
		return nil, damaged("its seek table is too long")
	}
	table := make([]byte, headerSize+n*entry)
	if err := readFull(r, table, size-headerSize-length); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(table) != skippableMagic || int64(binary.LittleEndian.Uint32(table[4:])) != length {
		return nil, damaged("no skippable frame around its seek table")
	}
	s := &Reader{r: r, name: name, cache: cache, at: make([]int64, 1, n+1), content: make([]int64, 1, n+1)}
	var at, content int64
	for e := table[headerSize:]; len(e) > 0; e = e[entry:] {
		stored, real := int64(binary.LittleEndian.Uint32(e)), int64(binary.LittleEndian.Uint32(e[4:]))
		if real > maxFrame || stored > 2*maxFrame {
			return nil, damaged("a frame is too large")
		}
		at, content = at+stored, content+real
		s.at, s.content = append(s.at, at), append(s.content, content)
	}
	if at != size-headerSize-length {
		return nil, damaged("its frames are not as long as it says")
	}
	return s, nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Size returns the size of the content in bytes.
func (s *Reader) Size() int64 { return s.content[len(s.content)-1] }

// ReadAt implements io.ReaderAt on the content.
func (s *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	for n < len(p) {
		if off >= s.Size() {
			return n, io.EOF
		}
		b, start, err := s.frameAt(off, 1)
		if err != nil {
			return n, err
		}
		m := copy(p[n:], b[off-start:])
		n, off = n+m, off+int64(m)
	}
	return n, nil
}

// Frames returns how many frames the content has.
func (s *Reader) Frames() int { return len(s.content) - 1 }

// Frame returns the content of a frame, which nobody may change.
func (s *Reader) Frame(i int) ([]byte, error) {
	b, _, err := s.frameAt(s.content[i], 1)
	return b, err
}

// raws are buffers for compressed frames.
var raws = sync.Pool{New: func() any { return new([]byte) }}

// frameAt returns the content of the frame that has the byte at off, and where it starts. Frames
// that have to be read are read ahead, up to so many in one piece.
func (s *Reader) frameAt(off int64, ahead int) ([]byte, int64, error) {
	i := sort.Search(len(s.content)-1, func(i int) bool { return s.content[i+1] > off })
	if b := s.cached(i); b != nil {
		return b, s.content[i], nil
	}
	end := min(i+max(ahead, 1), len(s.at)-1)
	buffer := raws.Get().(*[]byte)
	defer raws.Put(buffer)
	raw := slices.Grow((*buffer)[:0], int(s.at[end]-s.at[i]))[:s.at[end]-s.at[i]]
	if cap(raw) <= maxAhead*FrameSize {
		*buffer = raw
	}
	if err := readFull(s.r, raw, s.at[i]); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.name, err)
	}
	var first []byte
	for j := i; j < end; j++ {
		want := s.content[j+1] - s.content[j]
		b, err := decoders().DecodeAll(raw[s.at[j]-s.at[i]:s.at[j+1]-s.at[i]], make([]byte, 0, want))
		if err != nil || int64(len(b)) != want {
			return nil, 0, fmt.Errorf("%s: %w: frame %d: %v", s.name, ErrFormat, j, err)
		}
		if s.cache != nil {
			s.cache.put(frameKey{s.name, j}, b)
		}
		if j == i {
			first = b
		}
	}
	return first, s.content[i], nil
}

func (s *Reader) cached(i int) []byte {
	if s.cache == nil {
		return nil
	}
	return s.cache.get(frameKey{s.name, i})
}

// A Stream reads the content from front to back, or from where it is sought to. It reads ahead
// the more, the longer it goes on.
type Stream struct {
	s     *Reader
	off   int64
	frame []byte
	start int64 // of frame in the content
	ahead int
}

// maxAhead is how many frames are read in one piece: a megabyte or so.
const maxAhead = 8

// Stream returns a Stream of the content.
func (s *Reader) Stream() *Stream { return &Stream{s: s} }

// Seek implements io.Seeker.
func (t *Stream) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += t.off
	case io.SeekEnd:
		offset += t.s.Size()
	}
	if offset < 0 {
		return t.off, errors.New("negative offset")
	}
	if offset != t.off {
		t.ahead = 0
	}
	t.off = offset
	return offset, nil
}

// Read implements io.Reader.
func (t *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := t.Next(int64(len(p)))
	return copy(p, b), err
}

// Next returns the next bytes, up to n of them, which nobody may change. There are fewer where a frame ends.
func (t *Stream) Next(n int64) ([]byte, error) {
	if t.off >= t.s.Size() {
		return nil, io.EOF
	}
	if t.off < t.start || t.off >= t.start+int64(len(t.frame)) {
		var err error
		if t.frame, t.start, err = t.s.frameAt(t.off, t.ahead); err != nil {
			t.frame = nil
			return nil, err
		}
		t.ahead = min(max(1, 2*t.ahead), maxAhead)
	}
	b := t.frame[t.off-t.start:]
	b = b[:min(n, int64(len(b)))]
	t.off += int64(len(b))
	return b, nil
}
