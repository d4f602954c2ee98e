package unwind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"hallmark/internal/cursor"
)

// cfiSection is a section of call frame information, .eh_frame or .debug_frame.
type cfiSection struct {
	data []byte
	off  uint64 // of the section in the file, for errors
	virt uint64 // address of data[0]
	eh   bool
	cies []cie

	// Without a section header the end is where a length of zero says so, unless fewer
	// functions than this came before: linkers keep such lengths of the files they join.
	open  bool
	count uint64
}

// cie is a common information entry: what functions have in common.
type cie struct {
	at         uint64 // in the section
	codeAlign  uint64
	dataAlign  int64
	ra         uint64 // column of the return address
	encoding   uint8  // of addresses, DW_EH_PE
	augmented  bool   // functions have augmentation data, whose length is given
	signal     bool   // the caller was interrupted by a signal
	unreadable bool   // it cannot be understood
	damaged    bool   // its instructions are malformed
	initial    frameState
}

// Encodings of addresses in .eh_frame (LSB Core, "DWARF Exception Header Encoding").
const (
	peAbsolute = 0x00
	peULEB     = 0x01
	peU2       = 0x02
	peU4       = 0x03
	peU8       = 0x04
	peSigned   = 0x08
	peSLEB     = 0x09
	peS2       = 0x0a
	peS4       = 0x0b
	peS8       = 0x0c
	pePCRel    = 0x10
	peAligned  = 0x50
	peOmit     = 0xff
)

// record is an entry of a section.
type record struct {
	at       int // of its length
	idAt     int
	body     int // behind the identifier
	end      int
	id       uint64
	isCIE    bool
	wideForm bool
}

// next reads the header of the entry at pos. Without an entry it returns ok false, and
// an error unless the section ends there.
func (s *cfiSection) next(pos int) (rec record, ok bool, err error) {
	for len(s.data)-pos >= 4 {
		if length := uint64(binary.LittleEndian.Uint32(s.data[pos:])); length != 0 {
			return s.header(record{at: pos, idAt: pos + 4}, length)
		}
		pos += 4
	}
	return rec, false, nil
}

// ends reports whether a section without header ends at pos, before which there were so
// many functions: at a length of zero, or where all were there and no entry follows.
func (s *cfiSection) ends(pos int, functions uint64) bool {
	if !s.open || functions < s.count || len(s.data)-pos < 4 {
		return false
	}
	length := binary.LittleEndian.Uint32(s.data[pos:])
	return length == 0 || s.count > 0 && uint64(length) > uint64(len(s.data)-pos)
}

func (s *cfiSection) header(rec record, length uint64) (record, bool, error) {
	idSize, noID := 4, uint64(0xffffffff)
	if length >= 0xfffffff0 {
		if length != 0xffffffff || len(s.data)-rec.idAt < 8 {
			return rec, false, s.fail(rec.at, "reserved length")
		}
		length = binary.LittleEndian.Uint64(s.data[rec.idAt:])
		rec.idAt += 8
		rec.wideForm = true
		idSize, noID = 8, ^uint64(0)
	}
	if length < uint64(idSize) || length > uint64(len(s.data)-rec.idAt) {
		return rec, false, s.fail(rec.at, "an entry of %d bytes where %d are left", length, len(s.data)-rec.idAt)
	}
	rec.end = rec.idAt + int(length)
	rec.body = rec.idAt + idSize
	if idSize == 8 {
		rec.id = binary.LittleEndian.Uint64(s.data[rec.idAt:])
	} else {
		rec.id = uint64(binary.LittleEndian.Uint32(s.data[rec.idAt:]))
	}
	if s.eh {
		noID = 0
	}
	rec.isCIE = rec.id == noID
	return rec, true, nil
}

func (s *cfiSection) fail(at int, format string, args ...any) error {
	return &cursor.Error{Offset: int64(s.off) + int64(at), Msg: fmt.Sprintf(format, args...)}
}

// chunkSize is how many bytes of a section one goroutine takes at a time.
const chunkSize = 64 << 10

// scan finds the common entries, and where work can be divided: positions of entries, the
// last one where the section's entries end.
func (s *cfiSection) scan(x *executor) (cuts []int, err error) {
	pos, functions := 0, uint64(0)
	for {
		if s.ends(pos, functions) {
			return append(cuts, pos), nil
		}
		rec, ok, failed := s.next(pos)
		if !ok {
			return append(cuts, pos), failed
		}
		if len(cuts) == 0 || rec.at-cuts[len(cuts)-1] >= chunkSize {
			cuts = append(cuts, rec.at)
		}
		if rec.isCIE {
			if len(s.cies) == maxCIEs {
				return append(cuts, rec.at), s.fail(rec.at, "more than %d common entries", maxCIEs)
			}
			s.cies = append(s.cies, s.parseCIE(rec, x))
		} else {
			functions++
		}
		pos = rec.end
	}
}

// parseCIE reads a common entry (DWARF 5 section 6.4.1, LSB Core 10.6.1.1).
func (s *cfiSection) parseCIE(rec record, x *executor) cie {
	e := cie{at: uint64(rec.at)}
	c := cursor.New(s.data[:rec.end], int64(s.off), false)
	c.SeekTo(uint64(rec.body))
	version := c.U8()
	augmentation := c.CString()
	if version != 1 && version != 3 && version != 4 {
		c.Fail("version")
	}
	if version == 4 {
		if size, selector := c.U8(), c.U8(); size != 8 || selector != 0 {
			c.Fail("address size")
		}
	}
	if bytes.Equal(augmentation, []byte("eh")) {
		c.Skip(8)
		augmentation = nil
	}
	e.codeAlign, e.dataAlign = c.Uvarint(), signed(&c)
	if version == 1 {
		e.ra = uint64(c.U8())
	} else {
		e.ra = c.Uvarint()
	}
	s.augment(&e, &c, augmentation)
	if c.Err() != nil {
		e.unreadable = true
		return e
	}
	e.damaged = x.initial(&e, s.data[c.Pos():rec.end]) != nil
	return e
}

// augment reads what the letters of a common entry announce.
func (s *cfiSection) augment(e *cie, c *cursor.Cursor, letters []byte) {
	if len(letters) == 0 {
		return
	}
	if letters[0] != 'z' {
		c.Fail("augmentation")
		return
	}
	e.augmented = true
	length := c.Uvarint()
	if length > uint64(c.Len()) {
		c.Fail("augmentation length")
		return
	}
	end := uint64(c.Pos()) + length
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			e.encoding = c.U8()
		case 'L':
			c.U8()
		case 'P':
			s.skipPointer(c, c.U8())
		case 'S':
			e.signal = true
		case 'B', 'G': // keys of return addresses, and tagged stacks, of arm64
		default:
			c.Fail("augmentation")
		}
	}
	if e.encoding&0xf0 != 0 && e.encoding&0xf0 != pePCRel && e.encoding != peAligned || sizeOf(e.encoding) < 0 {
		c.Fail("encoding of addresses")
	}
	if uint64(c.Pos()) > end {
		c.Fail("augmentation length")
	}
	c.SeekTo(end)
}

// sizeOf returns how many bytes a number of this encoding has, 0 for LEB128 ones, or -1.
func sizeOf(encoding uint8) int {
	switch encoding & 0x0f {
	case peAbsolute, peU8, peS8, peSigned:
		return 8
	case peU4, peS4:
		return 4
	case peU2, peS2:
		return 2
	case peULEB, peSLEB:
		return 0
	}
	return -1
}

// skipPointer passes over the address of a personality routine.
func (s *cfiSection) skipPointer(c *cursor.Cursor, encoding uint8) {
	if encoding == peOmit {
		return
	}
	if encoding&0x70 == peAligned {
		c.Skip(-(s.virt + uint64(c.Pos())) & 7)
	}
	switch size := sizeOf(encoding); size {
	case -1:
		c.Fail("encoding of addresses")
	case 0:
		signed(c)
	default:
		c.Skip(uint64(size))
	}
}

// signed reads a signed LEB128 number, of which 64 bits count.
func signed(c *cursor.Cursor) (n int64) {
	for shift := uint(0); ; shift += 7 {
		b := c.U8()
		if shift < 64 {
			n |= int64(b&0x7f) << shift
		}
		if b < 0x80 {
			if b&0x40 != 0 && shift < 57 {
				n |= -1 << (shift + 7)
			}
			return n
		}
		if shift > 128 {
			c.Fail("LEB128 number is too long")
		}
	}
}

// find returns the common entry at a position, or nil.
func (s *cfiSection) find(at uint64) *cie {
	i, ok := slices.BinarySearchFunc(s.cies, at, func(e cie, at uint64) int {
		switch {
		case e.at < at:
			return -1
		case e.at > at:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &s.cies[i]
}

// rows fills a layer with the functions of a section, and reports damage.
func (b *builder) rows(s *cfiSection, source Source) error {
	cuts, err := s.scan(newExecutor(b.file.machine))
	b.warn(err)
	var told []span
	if source == DebugFrame {
		told = b.toldByPclntab()
	}
	layer := b.layer(source)
	n := len(cuts) - 1
	parts := make([]*part, max(n, 0))
	for i := range parts {
		parts[i] = &part{layer: layer}
	}
	layer.parts = parts
	workers := make([]sectionWorker, max(1, min(b.opts.threads(), n)))
	var taken, rows, functions atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		*w = sectionWorker{file: b.file, section: s, told: told, x: newExecutor(b.file.machine), rules: newRules()}
		all.Go(func() {
			for n := int(taken.Add(1) - 1); n < len(parts); n = int(taken.Add(1) - 1) {
				p := parts[n]
				p.expect(cuts[n+1] - cuts[n])
				p.rules = w.rules
				w.chunk(p, cuts[n], cuts[n+1])
				rows, functions := rows.Add(int64(len(p.rows))), functions.Add(int64(len(p.spans)))
				if b.bounds.err() != nil || b.opts.limits().tooLarge(int(rows), int(functions)) != nil {
					return // and so do the others
				}
			}
		})
	}
	all.Wait()
	if err := b.err(); err != nil {
		return err
	}
	if tooMany(workers) {
		return s.fail(0, "a section of more than %d distinct rules", maxDistinct)
	}
	b.warn(damage(workers))
	return b.sigreturns(layer)
}

// tooMany reports whether the workers together met more rules than a source may have,
// which does not depend on how many there are.
func tooMany(workers []sectionWorker) bool {
	sum := 0
	for i := range workers {
		if workers[i].rules.full {
			return true
		}
		sum += len(workers[i].rules.list)
	}
	if sum <= maxDistinct {
		return false
	}
	together := newRules()
	for i := range workers {
		for _, r := range workers[i].rules.list {
			together.number(r)
		}
	}
	return together.full
}

// expect makes room for what is usually in so many bytes of a section.
func (p *part) expect(size int) {
	p.rows = make([]row, 0, size/5)
	p.spans = make([]span, 0, size/32)
}

// damage puts into one error what the workers left out.
func damage(workers []sectionWorker) error {
	var first *cursor.Error
	functions := 0
	for i := range workers {
		w := &workers[i]
		functions += w.bad
		if e := w.first; e != nil && (first == nil || e.Offset < first.Offset) {
			first = e
		}
	}
	if functions == 0 {
		return nil
	}
	return fmt.Errorf("the call frame information of %d functions is left out: %w", functions, first)
}

// sectionWorker turns functions of a section into rows. Each goroutine has one.
type sectionWorker struct {
	file    *elfFile
	section *cfiSection
	told    []span // what other sources said already, in order
	x       *executor
	rules   *rules
	last    *cie
	bad     int           // functions left out
	first   *cursor.Error // the reason of that which comes first in the file
}

func (w *sectionWorker) chunk(p *part, pos, end int) {
	for pos < end {
		rec, ok, _ := w.section.next(pos)
		if !ok || rec.at >= end {
			return
		}
		if !rec.isCIE {
			w.function(p, rec)
		}
		pos = rec.end
	}
}

// leaveOut notes that a function cannot be understood.
func (w *sectionWorker) leaveOut(at int, err error) {
	w.bad++
	e := &cursor.Error{Offset: int64(w.section.off) + int64(at), Msg: err.Error()}
	if w.first == nil || e.Offset < w.first.Offset {
		w.first = e
	}
}

var (
	errNoCIE     = errors.New("no common entry")
	errCIE       = errors.New("the common entry cannot be understood")
	errFDE       = errors.New("the entry ends too early")
	errFar       = errors.New("its code is 2 GiB or more behind that of the first segment")
	errMalformed = errors.New("malformed instructions")
)

func (w *sectionWorker) cie(rec record) *cie {
	at := rec.id
	if w.section.eh {
		at = uint64(rec.idAt) - rec.id
	}
	if w.last == nil || w.last.at != at {
		w.last = w.section.find(at)
	}
	return w.last
}

// function adds the rows of one frame description entry.
func (w *sectionWorker) function(p *part, rec record) {
	e := w.cie(rec)
	if e == nil || e.unreadable {
		w.leaveOut(rec.at, errOf(e))
		return
	}
	r := reader{b: w.section.data[:rec.end], at: rec.body}
	raw, start := r.address(w.section.virt, e.encoding)
	_, size := r.address(w.section.virt, e.encoding&0x0f)
	if e.augmented {
		r.skip(r.unsigned())
	}
	if r.bad {
		w.leaveOut(rec.at, errFDE)
		return
	}
	// Code that the linker threw away begins at 0, or at an address where no code is.
	if raw == 0 || start == 0 {
		return
	}
	from, to, ok := w.file.code(start, start+unsignedOf(size, e.encoding))
	if !ok {
		return
	}
	if w.wasTold(from-p.layer.base, to-p.layer.base) {
		return
	}
	if !p.begin(from, to) {
		w.leaveOut(rec.at, errFar)
		return
	}
	w.x.section, w.x.part, w.x.source = w.section, p, p.layer.source
	w.x.fileOffset = uint64(from-p.layer.base) - start
	if e.damaged || !w.x.run(e, r, start, start+uint64(to-from)) {
		w.leaveOut(rec.at, errMalformed)
		p.forget()
		p.row(from, Rule{Kind: None, Register: Register(Damaged)})
	}
}

// toldByPclntab returns the functions that Go's linker reported, which reports the same in
// .debug_frame.
func (b *builder) toldByPclntab() []span {
	for _, l := range b.layers {
		if l.source == Pclntab {
			return l.ordered()
		}
	}
	return nil
}

// wasTold reports whether another source said already all that there is to say of a function.
func (w *sectionWorker) wasTold(start, end off) bool {
	i, found := slices.BinarySearchFunc(w.told, start, func(s span, at off) int { return cmp.Compare(off(s.start), at) })
	if !found {
		i--
	}
	return i >= 0 && end <= off(w.told[i].end)
}

func errOf(e *cie) error {
	if e == nil {
		return errNoCIE
	}
	return errCIE
}

// unsignedOf returns a length, whose encoding may be that of a signed number.
func unsignedOf(n uint64, encoding uint8) uint64 {
	switch sizeOf(encoding) {
	case 2:
		return uint64(uint16(n))
	case 4:
		return uint64(uint32(n))
	}
	return n
}

// forget takes back the rows of the function that begin started last.
func (p *part) forget() {
	s := &p.spans[len(p.spans)-1]
	p.rows = p.rows[:s.first]
	s.n = 0
}
