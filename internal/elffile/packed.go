package elffile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"hallmark/internal/cursor"
	"hallmark/internal/inflate"
)

// Kinds of compression (gABI, "Section Compression").
const (
	elfcompressZLIB = 1
	elfcompressZSTD = 2
)

// Limits on the compressed sections of a file together. Compilers' output shrinks to a third,
// a single section at most to a tenth; what claims to have shrunk more is made to fill memory.
// Bytes behind the end of a stream count as if they were of it: they are in the file, and what
// a file may take is a multiple of its size.
const (
	MaxInflated   = 8 << 30
	maxInflation  = 6
	freeInflation = 64 << 20 // which all files together may use however much they claim to have shrunk
)

// inflationRoom is what is left of freeInflation.
var inflationRoom atomic.Int64

func init() { inflationRoom.Store(freeInflation) }

// A Content is a section on its way into memory.
type Content struct {
	*Section
	Raw  []byte
	Open func(out, raw []byte) (Decompressor, error) // nil where Raw is all
	Want uint64                                      // bytes that decompressed Raw has, by its header
	Out  []byte                                      // of this size
	To   *[]byte
}

// A Decompressor fills memory with what a compressed section has.
type Decompressor interface {
	// Fill returns how many bytes are there, which are those up to end at least, unless there
	// is an error.
	Fill(end int) (int, error)
	Close() error
}

// Shares reports whether two compressed sections have bytes of the file in common: then
// a few could stand for very many.
func (b *Content) Shares(o *Content) bool {
	return b.Open != nil && o.Open != nil && b.Offset < o.Offset+o.Size && o.Offset < b.Offset+b.Size
}

// DebugSection returns .debug_NAME, or what was called so before there was a standard for compressed
// ones, .zdebug_NAME; nil where there is none.
func (m *Image) DebugSection(name string) *Section {
	if s := m.Section(".debug_" + name); s != nil {
		return s
	}
	return m.Section(".zdebug_" + name)
}

// Content returns a section that can be compressed. It is not loaded.
func (m *Image) Content(d *Views, s *Section) (*Content, error) {
	raw, err := m.View(d, s)
	if err != nil {
		return nil, err
	}
	b := &Content{Section: s, Raw: raw}
	return b, m.WhileMapped(func() error { return m.decompression(b) })
}

// decompression finds out whether and how a section is compressed.
func (m *Image) decompression(b *Content) error {
	switch {
	case b.Flags&SHF_COMPRESSED != 0:
		return m.compressed(b)
	case strings.HasPrefix(b.Name, ".z"):
		return m.compressedOld(b)
	default:
		return nil
	}
}

// compressed reads the header of a section with SHF_COMPRESSED.
func (m *Image) compressed(b *Content) error {
	c := m.Cursor(b.Raw, b.Offset)
	kind := c.U32()
	if m.Is64 {
		c.U32()
	}
	size := m.Word(&c)
	m.Word(&c) // ch_addralign
	if c.Err() != nil {
		return m.Damage(c.Err())
	}
	b.Raw = b.Raw[c.Pos():]
	switch kind {
	case elfcompressZLIB:
		b.Open = openZlib
	case elfcompressZSTD:
		b.Open = openZstd
	default:
		return m.Fail(b.Offset, "compression of an unknown kind")
	}
	b.Want = size
	return nil
}

// compressedOld reads the header of a .zdebug section, as GNU tools made them before
// there was SHF_COMPRESSED: "ZLIB", the size in big-endian, a zlib stream.
func (m *Image) compressedOld(b *Content) error {
	c := cursor.New(b.Raw, int64(b.Offset), true)
	if magic := c.U32(); magic != binary.BigEndian.Uint32([]byte("ZLIB")) {
		return m.Fail(b.Offset, "compressed section without its magic")
	}
	size := c.U64()
	if c.Err() != nil {
		return m.Damage(c.Err())
	}
	b.Raw, b.Open, b.Want = b.Raw[c.Pos():], openZlib, size
	return nil
}

// Admit checks that so many bytes may come out of the compressed sections of a file, and makes
// room for them.
func (m *Image) Admit(d *Views, sections []*Content) error {
	var inflated, packed uint64
	largest := &Content{}
	for _, b := range sections {
		if b.Open == nil {
			continue
		}
		if b.Want > MaxInflated || inflated+b.Want > MaxInflated {
			return m.Fail(b.Offset, fmt.Sprintf("compressed section claims an implausible size, %d bytes", b.Want))
		}
		inflated, packed = inflated+b.Want, packed+uint64(len(b.Raw))
		if b.Want >= largest.Want {
			largest = b
		}
	}
	if beyond := int64(inflated) - maxInflation*int64(packed); beyond > 0 {
		if inflationRoom.Add(-beyond) < 0 {
			inflationRoom.Add(beyond)
			return m.Fail(largest.Offset, fmt.Sprintf("compressed sections claim an implausible size, %d bytes of %d: more than %d times as many and %d MiB", inflated, packed, maxInflation, freeInflation>>20))
		}
		d.room += beyond
	}
	for _, b := range sections {
		if b.Open != nil {
			b.Out = d.allocate(b.Want)
		}
	}
	return nil
}

// Load puts the contents of sections where they belong, several at once, those that
// take longest first.
func (m *Image) Load(d *Views, sections []*Content, threads int) error {
	slices.SortStableFunc(sections, func(a, b *Content) int { return cmp.Compare(len(b.Out), len(a.Out)) })
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	errs := make([]error, len(sections))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(threads, len(sections)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(sections)); i = next.Add(1) - 1 {
				errs[i] = m.WhileMapped(func() error { return m.loadSection(sections[i]) })
				d.advise(sections[i].Raw, syscall.MADV_DONTNEED)
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// loadSection decompresses and relocates a section.
func (m *Image) loadSection(b *Content) (err error) {
	data := b.Raw
	if b.Open != nil {
		if data, err = b.Out, m.decompress(b); err != nil {
			return m.Fail(b.Offset, "compressed section: "+err.Error())
		}
	}
	if m.Relocatable {
		data, err = m.relocate(b.Section, data)
	}
	*b.To = data
	return err
}

func openZlib(out, raw []byte) (Decompressor, error) { return inflate.NewDecoder(out, raw), nil }

func openZstd(out, raw []byte) (Decompressor, error) {
	z, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, err
	}
	return &stream{ReadCloser: z.IOReadCloser(), out: out}, nil
}

// stream is the Decompressor of what comes out of a reader.
type stream struct {
	io.ReadCloser
	out []byte
	n   int // bytes that are there
}

// Fill reads up to end.
func (s *stream) Fill(end int) (int, error) {
	n, err := io.ReadFull(s, s.out[s.n:end])
	s.n += n
	return s.n, err
}

// decompress fills the section's memory.
func (m *Image) decompress(b *Content) error {
	d, err := b.Open(b.Out, b.Raw)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.Fill(len(b.Out))
	return err
}
