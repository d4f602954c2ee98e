package symbol

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"hallmark/internal/cursor"
	"hallmark/internal/defect"
	"hallmark/internal/dwarf"
	"hallmark/internal/ranges"
)

const shfCOMPRESSED = 0x800

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
	maxInflated   = 8 << 30
	maxInflation  = 6
	freeInflation = 64 << 20 // which all files together may use however much they claim to have shrunk
)

// inflationRoom is what is left of freeInflation.
var inflationRoom atomic.Int64

func init() { inflationRoom.Store(freeInflation) }

// debugData are the debug sections of a file, mapped or read into memory.
type debugData struct {
	*dwarf.Data
	mapped [][]byte     // parts of the file
	memory [][]byte     // what was decompressed
	room   int64        // what it has of inflationRoom
	done   atomic.Int64 // bytes of units that were read
}

// hasDWARF reports whether the file has a .debug_info, compressed or not.
func (m *image) hasDWARF() bool {
	return m.section(".debug_info") != nil || m.section(".zdebug_info") != nil
}

// openDebug returns the debug sections of the file whose names have a suffix, and
// decompresses so many of them at once. The caller closes them, and uses nothing of
// them afterwards.
func (m *image) openDebug(suffix string, threads int) (*debugData, error) {
	d, sections, err := m.debugSections(suffix)
	if err == nil {
		err = m.load(d, sections, threads)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// openDebugByNeed does what openDebug does, but that a compressed .debug_info is left
// to what it returns second, which is nil where there is none.
func (m *image) openDebugByNeed() (*debugData, *inflating, error) {
	d, sections, err := m.debugSections("")
	if err != nil {
		d.close()
		return nil, nil, err
	}
	var info *inflating
	sections = slices.DeleteFunc(sections, func(b *debugSection) bool {
		if b.to != &d.Info || m.rel {
			return false
		}
		if b.open == nil {
			d.Peek = func(p []byte, offset uint64) bool { return m.readAt(p, b.off+offset) == nil }
			return false
		}
		d.Info = b.out
		info = newInflating(m, b)
		info.need(0) // while others are decompressed
		return true
	})
	if err := m.load(d, sections, 0); err != nil {
		if info != nil {
			info.stop()
		}
		d.close()
		return nil, nil, err
	}
	return d, info, nil
}

// debugSections returns the debug sections of the file whose names have a suffix. They
// are not loaded.
func (m *image) debugSections(suffix string) (*debugData, []*debugSection, error) {
	d := &debugData{
		Data: &dwarf.Data{Big: m.big, AddrSize: int(m.size(4, 8)), Text: m.text()},
	}
	var sections []*debugSection
	for _, s := range []struct {
		name string
		data *[]byte
	}{
		{"info", &d.Info},
		{"abbrev", &d.Abbrev},
		{"line", &d.Line},
		{"str", &d.Str},
		{"line_str", &d.LineStr},
		{"str_offsets", &d.StrOffsets},
		{"addr", &d.Addr},
		{"ranges", &d.Ranges},
		{"rnglists", &d.Rnglists},
	} {
		section, err := m.debugSection(d, s.name+suffix)
		if err != nil {
			return d, nil, err
		}
		if section != nil {
			if slices.ContainsFunc(sections, section.shares) {
				return d, nil, m.fail(section.off, "compressed section shares bytes with another")
			}
			section.to = s.data
			sections = append(sections, section)
		}
	}
	return d, sections, m.admit(d, sections)
}

// debugSection is a section of debug information on its way into memory.
type debugSection struct {
	*section
	raw  []byte
	open func(io.Reader) (io.Reader, error) // of the decompressor, nil where raw is all
	want uint64                             // bytes that decompressed raw has, by its header
	out  []byte                             // of this size
	to   *[]byte
}

// shares reports whether two compressed sections have bytes of the file in common: then
// a few could stand for very many.
func (b *debugSection) shares(o *debugSection) bool {
	return b.open != nil && o.open != nil && b.off < o.off+o.size && o.off < b.off+b.size
}

// load puts the contents of sections where they belong, several at once, those that
// take longest first.
func (m *image) load(d *debugData, sections []*debugSection, threads int) error {
	slices.SortStableFunc(sections, func(a, b *debugSection) int { return cmp.Compare(len(b.out), len(a.out)) })
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	errs := make([]error, len(sections))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(threads, len(sections)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(sections)); i = next.Add(1) - 1 {
				errs[i] = m.whileMapped(func() error { return m.loadSection(sections[i]) })
				d.advise(sections[i].raw, syscall.MADV_DONTNEED)
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

// errShrunk says that mapped bytes were no longer there.
var errShrunk = errors.New("the file was cut off while it was read")

// whileMapped calls f, which looks at mapped bytes. Those of a file that is cut off
// meanwhile are gone, and looking at them is a fault, which becomes an error. So does
// every other panic: it is on a goroutine of its own in many places, where nobody else
// could contain it.
func whileMapped(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errShrunk
		default:
			if defect.Escapes() {
				panic(fault)
			}
			err = defect.Caught(fault)
		}
	}()
	return f()
}

// whileMapped calls f, which looks at mapped bytes, and names the file where they are
// gone, or f has a defect.
func (m *image) whileMapped(f func() error) error {
	err := whileMapped(f)
	if err == errShrunk || defect.Is(err) {
		return m.damage(err)
	}
	return err
}

// close gives back what is mapped.
func (d *debugData) close() error {
	var first error
	for _, b := range slices.Concat(d.mapped, d.memory) {
		if err := syscall.Munmap(b); err != nil && first == nil {
			first = os.NewSyscallError("munmap", err)
		}
	}
	d.mapped, d.memory = nil, nil
	inflationRoom.Add(d.room)
	d.room = 0
	return first
}

// allocate returns memory for the decompressed bytes of a section. It is not the
// garbage collector's, which would let as much again become garbage.
func (d *debugData) allocate(size uint64) []byte {
	if size >= 1<<16 {
		b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err == nil {
			d.memory = append(d.memory, b)
			return b
		}
	}
	return make([]byte, size)
}

// advise tells the system what will be done with a part of a section, if the section
// is mapped. It is advice: that it fails does no harm.
func (d *debugData) advise(part []byte, advice int) {
	if len(part) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(&part[0]))
	for _, m := range d.mapped {
		start := uintptr(unsafe.Pointer(&m[0]))
		if at < start || at-start >= uintptr(len(m)) {
			continue
		}
		first := (at - start + page - 1) &^ (page - 1)
		last := (at - start + uintptr(len(part))) &^ (page - 1)
		if first < last {
			syscall.Madvise(m[first:last], advice)
		}
	}
}

// text returns the addresses of the sections of code, in order and disjoint.
func (m *image) text() []dwarf.Range {
	var spans []ranges.Span
	for i := range m.sections {
		if s := &m.sections[i]; s.isText() && s.size != 0 {
			spans = append(spans, ranges.Span{Start: s.addr, End: s.addr + min(s.size, math.MaxUint64-s.addr)})
		}
	}
	var text []dwarf.Range
	for _, s := range ranges.Union(spans) {
		text = append(text, dwarf.Range{Low: s.Start, High: s.End})
	}
	return text
}

// debugSection returns .debug_NAME, nil where there is none.
func (m *image) debugSection(d *debugData, name string) (*debugSection, error) {
	s := m.section(".debug_" + name)
	if s == nil {
		if s = m.section(".zdebug_" + name); s == nil {
			return nil, nil
		}
	}
	raw, err := m.view(d, s)
	if err != nil {
		return nil, err
	}
	b := &debugSection{section: s, raw: raw}
	return b, m.whileMapped(func() error { return m.decompression(b) })
}

// decompression finds out whether and how a section is compressed.
func (m *image) decompression(b *debugSection) error {
	switch {
	case b.flags&shfCOMPRESSED != 0:
		return m.compressed(b)
	case strings.HasPrefix(b.name, ".z"):
		return m.compressedOld(b)
	default:
		return nil
	}
}

// loadSection decompresses and relocates a section.
func (m *image) loadSection(b *debugSection) (err error) {
	data := b.raw
	if b.open != nil {
		if data, err = b.out, m.decompress(b); err != nil {
			return m.fail(b.off, "compressed section: "+err.Error())
		}
	}
	if m.rel {
		data, err = m.relocate(b.section, data)
	}
	*b.to = data
	return err
}

// view returns the bytes of a section: mapped where the file is one of the system's,
// and else read.
func (m *image) view(d *debugData, s *section) ([]byte, error) {
	f, ok := m.r.(*os.File)
	if !ok || s.size < 1<<16 {
		return m.read(s.off, s.size)
	}
	if err := m.checkEnd(s.off, s.size); err != nil {
		return nil, err
	}
	if err := m.spend(s.off, s.size); err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize())
	before := s.off % page
	b, err := syscall.Mmap(int(f.Fd()), int64(s.off-before), int(before+s.size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return m.read(s.off, s.size)
	}
	d.mapped = append(d.mapped, b)
	return b[before:], nil
}

// compressed reads the header of a section with SHF_COMPRESSED.
func (m *image) compressed(b *debugSection) error {
	c := m.cursor(b.raw, b.off)
	kind := c.U32()
	if m.is64 {
		c.U32()
	}
	size := m.word(&c)
	m.word(&c) // ch_addralign
	if c.Err() != nil {
		return m.damage(c.Err())
	}
	b.raw = b.raw[c.Pos():]
	switch kind {
	case elfcompressZLIB:
		b.open = openZlib
	case elfcompressZSTD:
		b.open = openZstd
	default:
		return m.fail(b.off, "compression of an unknown kind")
	}
	b.want = size
	return nil
}

// compressedOld reads the header of a .zdebug section, as GNU tools made them before
// there was SHF_COMPRESSED: "ZLIB", the size in big-endian, a zlib stream.
func (m *image) compressedOld(b *debugSection) error {
	c := cursor.New(b.raw, int64(b.off), true)
	if magic := c.U32(); magic != binary.BigEndian.Uint32([]byte("ZLIB")) {
		return m.fail(b.off, "compressed section without its magic")
	}
	size := c.U64()
	if c.Err() != nil {
		return m.damage(c.Err())
	}
	b.raw, b.open, b.want = b.raw[c.Pos():], openZlib, size
	return nil
}

// admit checks that so many bytes may come out of the compressed sections of a file, and makes
// room for them.
func (m *image) admit(d *debugData, sections []*debugSection) error {
	var inflated, packed, stored uint64
	largest := &debugSection{}
	for _, b := range sections {
		stored += uint64(len(b.raw))
		if b.open == nil {
			continue
		}
		if b.want > maxInflated || inflated+b.want > maxInflated {
			return m.fail(b.off, fmt.Sprintf("compressed section claims an implausible size, %d bytes", b.want))
		}
		inflated, packed = inflated+b.want, packed+uint64(len(b.raw))
		if b.want >= largest.want {
			largest = b
		}
	}
	d.Stored += int64(stored)
	if beyond := int64(inflated) - maxInflation*int64(packed); beyond > 0 {
		if inflationRoom.Add(-beyond) < 0 {
			inflationRoom.Add(beyond)
			return m.fail(largest.off, fmt.Sprintf("compressed sections claim an implausible size, %d bytes of %d: more than %d times as many and %d MiB", inflated, packed, maxInflation, freeInflation>>20))
		}
		d.room += beyond
	}
	for _, b := range sections {
		if b.open != nil {
			b.out = d.allocate(b.want)
		}
	}
	return nil
}

func openZlib(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }

func openZstd(r io.Reader) (io.Reader, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// decompress fills the section's memory.
func (m *image) decompress(b *debugSection) error {
	r, err := b.open(bytes.NewReader(b.raw))
	if err != nil {
		return err
	}
	if c, ok := r.(io.Closer); ok {
		defer c.Close()
	}
	_, err = io.ReadFull(r, b.out)
	return err
}
