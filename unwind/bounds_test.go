package unwind

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/testenv"
)

// sparse is a file that has bytes at its beginning, and is zeros behind. It counts what is
// read.
type sparse struct {
	head []byte
	size int64
	read atomic.Int64
	each func() // before a read
}

func (s *sparse) ReadAt(b []byte, off int64) (int, error) {
	s.read.Add(int64(len(b)))
	if s.each != nil {
		s.each()
	}
	if off >= s.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), s.size-off))
	clear(b[:n])
	if off < int64(len(s.head)) {
		copy(b[:n], s.head[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

const (
	elfHeaderSize      = 64
	programHeaderSize  = 56
	firstProgramHeader = elfHeaderSize // in files of tests
)

// programELF returns the beginning of a program for x86-64 whose segments of code are so.
func programELF(segments ...segment) []byte {
	order := binary.LittleEndian
	b := make([]byte, elfHeaderSize)
	copy(b, "\x7fELF\x02\x01\x01")
	order.PutUint16(b[16:], 3) // ET_DYN
	order.PutUint16(b[18:], emX86_64)
	order.PutUint64(b[32:], firstProgramHeader)
	order.PutUint16(b[54:], programHeaderSize)
	order.PutUint16(b[56:], uint16(len(segments)))
	for _, s := range segments {
		b = order.AppendUint32(b, uint32(elf.PT_LOAD))
		b = order.AppendUint32(b, uint32(elf.PF_X|elf.PF_R))
		for _, n := range []uint64{s.off, s.virt, s.virt, s.size, s.size, 0x1000} {
			b = order.AppendUint64(b, n)
		}
	}
	return b
}

// TestSparse builds tables of files that are holes: most of that is not read.
func TestSparse(t *testing.T) {
	var many []segment
	for i := range uint64(1000) {
		many = append(many, segment{off: i << 30, virt: i << 30, size: 1<<30 - 1})
	}
	overlapping := slices.Repeat([]segment{{size: 1 << 40}}, 1000)
	for name, head := range map[string][]byte{
		"8 GiB":       programELF(segment{size: 8 << 30}),
		"16 TiB":      programELF(segment{size: 16 << 40}),
		"segments":    programELF(many...),
		"overlapping": programELF(overlapping...),
	} {
		f := &sparse{head: head, size: 16 << 40}
		table, err := Build(f, BuildOptions{})
		if err != nil || table.Rows() > 2 { // the entry is at 0
			t.Errorf("%s: %v, %v", name, table, err)
		}
		if n := f.read.Load(); n > 3*maxLooked || n < maxLooked {
			t.Errorf("%s: %d bytes were read", name, n)
		}
	}
}

// TestGapsFarApart has code at every place but a byte in 64 KiB: what is read for the gaps is
// bounded, not only what is in them.
func TestGapsFarApart(t *testing.T) {
	f := &sparse{head: programELF(segment{size: maxSpread}), size: maxSpread}
	opened, err := openELF(f)
	if err != nil {
		t.Fatal(err)
	}
	b := newBuilder(opened, BuildOptions{})
	p := b.layer(EHFrame).part()
	for at := off(0); at < maxSpread; at += gapWindow {
		p.add(at+16, min(at+gapWindow, maxSpread), Rule{Kind: Outermost})
	}
	if err := b.known(); err != nil {
		t.Fatal(err)
	}
	if n := f.read.Load(); n > maxLooked+2*goWindow || n < maxLooked {
		t.Errorf("%d bytes were read", n)
	}
}

// TestContext ends builds at each of their first reads.
func TestContext(t *testing.T) {
	for stop := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		f, reads := &sparse{head: programELF(segment{size: 8 << 30}), size: 8 << 30}, 0
		f.each = func() {
			if reads++; reads > stop {
				cancel()
			}
		}
		_, err := Build(f, BuildOptions{Context: ctx})
		if !errors.Is(err, context.Canceled) || reads > stop+1 {
			t.Errorf("stopped at %d: %v after %d reads", stop, err, reads)
		}
	}
}

// TestDividedFunctions has functions of an upper layer all over one with as many rows of a
// lower one, which is divided by them: its rows are not looked at again for each of them.
func TestDividedFunctions(t *testing.T) {
	const n = 100000
	b := newBuilder(&elfFile{Image: &elffile.Image{Reader: &sparse{}}, machine: X86_64, text: []segment{{size: 1 << 30}}}, BuildOptions{})
	upper, lower := b.layer(EHFrame).part(), b.layer(DebugFrame).part()
	lower.begin(0, 16*n)
	for i := range addr.Offset(n) {
		upper.add(16*i+8, 16*i+16, Rule{Kind: Outermost})
		lower.row(16*i, Rule{Kind: Reg, Register: RSP, Offset: int32(8 * (i % 100)), RA: -1})
	}
	m := &merger{parts: []*part{upper, lower}, rules: newRules(), known: map[*rules][]uint32{}}
	lowerSpans := b.layers[1].ordered()
	lowerSpans[0].part = 1
	all := over(apart(b.layers[0].ordered()), apart(lowerSpans))
	rows := m.rows(all)
	if len(rows) < 2*n || cap(rows) > 6*n {
		t.Errorf("%d rows, with room for %d", len(rows), cap(rows))
	}
	table, err := b.table()
	if err != nil {
		t.Fatal(err)
	}
	for i := range addr.Offset(n) {
		if r := table.Lookup(16*i + 4); r.Offset != int32(8*(i%100)) || r.Kind != Reg {
			t.Fatalf("%d: %+v", i, r)
		}
		if r := table.Lookup(16*i + 12); r.Kind != Outermost {
			t.Fatalf("%d: %+v", i, r)
		}
	}
}

// cfiBuilder returns a builder for call frame information of code at codeAt.
func cfiBuilder(threads int) *builder {
	return newBuilder(&elfFile{Image: &elffile.Image{Reader: &sparse{}}, machine: X86_64, text: []segment{{off: codeAt, virt: codeAt, size: 1 << 30}}}, BuildOptions{Threads: threads})
}

// TestTooMuchCFI has more functions, and more rows, than a table is made of: there is none,
// with any number of threads, and no more memory than for one that is just not too large. A small one takes less.
// The race detector looks at the threads once.
func TestTooMuchCFI(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	var functions, rows frames
	var program []byte
	for range 40000 {
		program = append(program, 0x41, 0x0e, 16, 0x41, 0x0e, 8) // to the next byte, another offset of the CFA
	}
	functions.eh, rows.eh = true, true
	functions.cie(plain...)
	rows.cie(plain...)
	for range maxFunctions + 1 {
		functions.fde(absolute(codeAt, 0x10)...)
	}
	for range maxRows/80000 + 1 {
		rows.fde(absolute(codeAt, 1<<20, program...)...)
	}
	for name, f := range map[string]*frames{"functions": &functions, "rows": &rows} {
		for _, threads := range []int{1, 3} {
			if testenv.Brief() && (threads == 1 || name == "rows") {
				continue
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b, most := cfiBuilder(threads), uint64(1<<30)
			if b.opts.Small = threads == 1; b.opts.Small {
				most /= smallShare
			}
			err := b.rows(&cfiSection{data: f.Bytes(), eh: true}, EHFrame)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s, %d threads: %v", name, threads, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("%s, %d threads: %d bytes were allocated for %d", name, threads, n, f.Len())
			}
		}
	}
}

// TestSmall has a little more than a fourth of the functions, or of the bytes of call frame information, of
// which a table is made: there is a table, but no small one.
func TestSmall(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	f := frames{eh: true}
	f.cie(plain...)
	for range maxFunctions/smallShare + 1 {
		f.fde(absolute(codeAt, 0x10)...)
	}
	for _, small := range []bool{false, true} {
		b := cfiBuilder(2)
		b.opts.Small = small
		err := b.rows(&cfiSection{data: f.Bytes(), eh: true}, EHFrame)
		if errors.Is(err, ErrUnsupported) != small {
			t.Errorf("small: %v: %v", small, err)
		}
	}
	b := cfiBuilder(1)
	b.opts.Small = true
	p := b.layer(EHFrame).part()
	p.begin(codeAt, codeAt+1<<30)
	for at := off(0); at < maxRows/smallShare+10; at++ {
		p.put(uint32(codeAt+at), uint32(at))
	}
	if n := len(p.rows); n != maxRows/smallShare+1 || b.err() == nil {
		t.Errorf("%d rows are kept of a small table, and %v", n, b.err())
	}
	size := uint64(maxCFI/smallShare + 1)
	section := programELF(segment{size: size})
	for _, small := range []bool{false, true} {
		opts := BuildOptions{Small: small}
		opened, err := openELF(&sparse{head: section, size: int64(size)})
		if err != nil {
			t.Fatal(err)
		}
		opened.maxCFI = opts.limits().cfi
		if _, err := opened.readCFI(0, size); (err != nil) != small {
			t.Errorf("small: %v: %v", small, err)
		}
	}
}

// TestTooManyCIEs has more common entries than are kept: the section ends there.
func TestTooManyCIEs(t *testing.T) {
	f := &frames{eh: true}
	f.cie(plain...)
	f.fde(absolute(codeAt, 0x10)...)
	for range maxCIEs {
		f.cie(plain...)
	}
	f.fde(absolute(codeAt+0x100, 0x10)...)
	b := cfiBuilder(2)
	var told []error
	b.opts.Warn = func(err error) { told = append(told, err) }
	if err := b.rows(&cfiSection{data: f.Bytes(), eh: true}, EHFrame); err != nil {
		t.Fatal(err)
	}
	table, err := b.table()
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || table.Lookup(codeAt).Kind != Reg || table.Lookup(codeAt+0x100).Kind != None {
		t.Errorf("%v is told; %+v", told, table.Lookup(codeAt+0x100))
	}
}
