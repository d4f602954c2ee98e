package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
)

const shfCOMPRESSED = 0x800

// Kinds of compression (gABI, "Section Compression").
const (
	elfcompressZLIB = 1
	elfcompressZSTD = 2
)

// Limits on compressed sections. Compilers' output shrinks to a third, at most to
// a tenth; what claims to have shrunk more is made to fill memory.
const (
	maxInflated   = 8 << 30
	maxInflation  = 64
	freeInflation = 16 << 20 // which small files may use however much they claim to have shrunk
)

// debugData are the debug sections of a file, mapped or read into memory.
type debugData struct {
	*dwarf.Data
	mapped [][]byte
	room   uint64       // what may still be decompressed
	done   atomic.Int64 // bytes of units that were read
}

// hasDWARF reports whether the file has a .debug_info, compressed or not.
func (m *image) hasDWARF() bool {
	return m.section(".debug_info") != nil || m.section(".zdebug_info") != nil
}

// openDebug returns the debug sections of the file whose names have a suffix. The
// caller closes them, and uses nothing of them afterwards.
func (m *image) openDebug(suffix string) (*debugData, error) {
	d := &debugData{
		Data: &dwarf.Data{Big: m.big, AddrSize: int(m.size(4, 8)), Text: m.text()},
		room: freeInflation,
	}
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
		var err error
		if *s.data, err = m.debugSection(d, s.name+suffix); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// errShrunk says that mapped bytes were no longer there.
var errShrunk = errors.New("the file was cut off while it was read")

// whileMapped calls f, which looks at mapped bytes. Those of a file that is cut off
// meanwhile are gone, and looking at them is a fault, which becomes an error.
func whileMapped(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errShrunk
		default:
			panic(fault)
		}
	}()
	return f()
}

// close gives back what is mapped.
func (d *debugData) close() error {
	var first error
	for _, b := range d.mapped {
		if err := syscall.Munmap(b); err != nil && first == nil {
			first = os.NewSyscallError("munmap", err)
		}
	}
	d.mapped = nil
	return first
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
	var spans []span
	for i := range m.sections {
		if s := &m.sections[i]; s.isText() && s.size != 0 {
			spans = append(spans, span{start: s.addr, end: s.addr + s.size})
		}
	}
	return union(spans)
}

// debugSection returns the contents of .debug_NAME.
func (m *image) debugSection(d *debugData, name string) ([]byte, error) {
	s := m.section(".debug_" + name)
	if s == nil {
		if s = m.section(".zdebug_" + name); s == nil {
			return nil, nil
		}
	}
	data, err := m.contents(d, s)
	if err != nil || !m.rel {
		return data, err
	}
	return m.relocate(s, data)
}

// contents returns what is in a section, decompressed.
func (m *image) contents(d *debugData, s *section) ([]byte, error) {
	raw, err := m.view(d, s)
	switch {
	case err != nil:
		return nil, err
	case s.flags&shfCOMPRESSED != 0:
		return m.decompress(d, s, raw)
	case strings.HasPrefix(s.name, ".z"):
		return m.decompressOld(d, s, raw)
	default:
		return raw, nil
	}
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
	page := uint64(os.Getpagesize())
	before := s.off % page
	b, err := syscall.Mmap(int(f.Fd()), int64(s.off-before), int(before+s.size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return m.read(s.off, s.size)
	}
	d.mapped = append(d.mapped, b)
	return b[before:], nil
}

// decompress inflates a section with SHF_COMPRESSED.
func (m *image) decompress(d *debugData, s *section, raw []byte) ([]byte, error) {
	c := m.cursor(raw, s.off)
	kind := c.U32()
	if m.is64 {
		c.U32()
	}
	size := m.word(&c)
	m.word(&c) // ch_addralign
	if c.Err() != nil {
		return nil, m.damage(c.Err())
	}
	switch raw = raw[c.Pos():]; kind {
	case elfcompressZLIB:
		return m.inflate(d, s, raw, size)
	case elfcompressZSTD:
		return m.inflateZstd(d, s, raw, size)
	default:
		return nil, m.fail(s.off, "compression of an unknown kind")
	}
}

// decompressOld inflates a .zdebug section, as GNU tools made them before there was
// SHF_COMPRESSED: "ZLIB", the size in big-endian, a zlib stream.
func (m *image) decompressOld(d *debugData, s *section, raw []byte) ([]byte, error) {
	c := cursor.New(raw, int64(s.off), true)
	if magic := c.U32(); magic != binary.BigEndian.Uint32([]byte("ZLIB")) {
		return nil, m.fail(s.off, "compressed section without its magic")
	}
	size := c.U64()
	if c.Err() != nil {
		return nil, m.damage(c.Err())
	}
	return m.inflate(d, s, raw[c.Pos():], size)
}

// admit checks that a section of so many bytes may come out of n bytes.
func (m *image) admit(d *debugData, s *section, n int, size uint64) error {
	d.room += maxInflation * uint64(n)
	if size > min(d.room, maxInflated) {
		return m.fail(s.off, "compressed section claims an implausible size")
	}
	d.room -= size
	return nil
}

func (m *image) inflate(d *debugData, s *section, raw []byte, size uint64) ([]byte, error) {
	if err := m.admit(d, s, len(raw), size); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, m.fail(s.off, err.Error())
	}
	return m.fill(s, z, size)
}

func (m *image) inflateZstd(d *debugData, s *section, raw []byte, size uint64) ([]byte, error) {
	if err := m.admit(d, s, len(raw), size); err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, m.fail(s.off, err.Error())
	}
	defer z.Close()
	return m.fill(s, z, size)
}

// fill returns the size bytes that come out of r.
func (m *image) fill(s *section, r io.Reader, size uint64) ([]byte, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, m.fail(s.off, "compressed section: "+err.Error())
	}
	return data, nil
}
