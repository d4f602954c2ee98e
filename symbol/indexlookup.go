package symbol

import (
	"encoding/binary"

	"hallmark/addr"
)

// maxIndexDepth bounds how many frames an address can have.
const maxIndexDepth = 1 << 10

// AppendFrames appends the frames at a virtual address to dst, innermost first,
// and returns their source. It allocates nothing if dst has room. Func of each is
// left empty: what it should be has to be made, by Frame.Readable, and once for each
// function is enough.
func (x *Index) AppendFrames(dst []Frame, v addr.Virt) ([]Frame, Source) {
	at, ok := x.find(uint64(v))
	if !ok {
		return dst, SourceUnknown
	}
	return x.chain(dst, at)
}

// chain appends the frames of a location: that of the innermost function, and those
// of its callers.
func (x *Index) chain(dst []Frame, at location) ([]Frame, Source) {
	r := x.stream()
	empty := len(dst)
	for range maxIndexDepth {
		p, end := r.site(at.site)
		fn, ok := x.function(p.function)
		name := x.string(fn.name)
		if !ok || end >= outside || name == "" {
			break
		}
		if !p.hasFile {
			p.file = fn.file
		}
		dst = append(dst, Frame{
			Linkage: name, File: x.path(p.file),
			Line: int(fn.start + uint32(at.line)), Column: int(at.column),
			Start: int(fn.start), Lang: fn.lang, Inlined: p.inlined,
		})
		if !p.inlined {
			if p.hasSymbol {
				dst[len(dst)-1].Symbol = x.string(p.symbol)
			}
			return dst, p.source
		}
		at = p.call
	}
	return dst[:empty], SourceUnknown
}

func (x *Index) stream() streamReader {
	return streamReader{x.parts[partStream], x.flags&indexHasColumns != 0}
}

// location is a line in a site.
type location struct {
	site   uint32 // offset in the stream
	line   int32  // from the line where the site's function starts
	column uint32
}

// find returns the location of a virtual address.
func (x *Index) find(v uint64) (location, bool) {
	v -= x.base
	if v > 1<<32-1 {
		return location{}, false
	}
	start, at, ok := x.block(uint32(v))
	if !ok {
		return location{}, false
	}
	r := x.stream()
	e := entry{block: at}
	pos := uint64(at)
	for left := v - uint64(start); ; left -= e.length {
		pos = r.next(&e, pos)
		switch {
		case pos >= outside:
			return location{}, false
		case e.length == 0 || left < e.length:
			return e.location, !e.hole
		}
	}
}

// block returns where the block that has an offset from base starts, and where it is
// in the stream.
func (x *Index) block(off uint32) (start, at uint32, ok bool) {
	buckets, blocks := x.parts[partBuckets], x.parts[partBlocks]
	k := uint64(off>>x.shift) * 4
	if k+8 > uint64(len(buckets)) {
		return 0, 0, false
	}
	le := binary.LittleEndian
	low, high := uint64(le.Uint32(buckets[k:])), uint64(le.Uint32(buckets[k+4:]))+1
	if low >= high || high > uint64(len(blocks)/blockSize) {
		return 0, 0, false
	}
	for high-low > 1 {
		middle := (low + high) / 2
		if le.Uint32(blocks[middle*blockSize:]) <= off {
			low = middle
		} else {
			high = middle
		}
	}
	b := blocks[low*blockSize : low*blockSize+blockSize]
	start = le.Uint32(b)
	return start, le.Uint32(b[4:]), start <= off
}

// entry is a part of a block: so many addresses that have one location, or none.
type entry struct {
	location
	block  uint32 // offset of the block in the stream
	length uint64 // 0 for the rest of the block
	hole   bool
}

// site is a function in the code, or a call inlined into another site.
type site struct {
	function  uint32
	file      uint32
	symbol    uint32
	hasFile   bool
	hasSymbol bool
	inlined   bool
	source    Source
	call      location // of an inlined one
}

// streamReader reads the stream of an index. Offsets beyond the end of data stand for
// damage: nothing can be read there, and they only grow.
type streamReader struct {
	data    []byte
	columns bool
}

// outside is an offset beyond the end of every stream.
const outside = 1 << 40

// number reads an unsigned LEB128 number at an offset, and returns where it ends.
func (r streamReader) number(at uint64) (uint32, uint64) {
	if at < uint64(len(r.data)) && r.data[at] < 0x80 {
		return uint32(r.data[at]), at + 1
	}
	return r.longNumber(at)
}

// longNumber is number for those of several bytes, apart so that number is inlined.
//
//go:noinline
func (r streamReader) longNumber(at uint64) (n uint32, end uint64) {
	for shift := 0; shift < 35 && at < uint64(len(r.data)); shift += 7 {
		b := r.data[at]
		at++
		n |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return n, at
		}
	}
	return 0, outside
}

// signed returns the number that n stands for, whose lowest bit is the sign.
func signed(n uint32) int32 { return int32(n>>1) ^ -int32(n&1) }

// next reads an entry at an offset, and returns where it ends. e is the one before it
// in the block.
func (r streamReader) next(e *entry, at uint64) uint64 {
	if at >= uint64(len(r.data)) {
		return outside
	}
	first := r.data[at]
	at++
	n := uint32(0)
	length := uint64(first & 0xf)
	if length == lengthLong {
		n, at = r.number(at)
		length += uint64(n)
	}
	e.length = length
	e.hole = false
	switch kind := first >> 4; kind {
	case entryHole:
		e.hole = true
		return at
	case entrySite:
		n, at = r.number(at)
		e.site = e.block - n
		n, at = r.number(at)
		e.line = signed(n)
	case entryLine:
		n, at = r.number(at)
		e.line += signed(n)
	case entryCaller:
		outer, end := r.site(e.site)
		if end == outside {
			return outside
		}
		n, at = r.number(at)
		e.location = outer.call
		e.line += signed(n)
	default:
		e.line += lineSteps[kind-entryStep]
	}
	if r.columns {
		e.column, at = r.number(at)
	}
	return at
}

// site reads the site at an offset of the stream, and returns where it ends.
func (r streamReader) site(off uint32) (p site, at uint64) {
	at = uint64(off)
	if at >= uint64(len(r.data)) {
		return p, outside
	}
	flags := r.data[at]
	p.function, at = r.number(at + 1)
	if p.hasFile = flags&siteFile != 0; p.hasFile {
		p.file, at = r.number(at)
	}
	if p.inlined = flags&siteInlined != 0; !p.inlined {
		p.source = Source(flags >> siteSource)
		if p.hasSymbol = flags&siteSymbol != 0; p.hasSymbol {
			p.symbol, at = r.number(at)
		}
		return p, at
	}
	back, at := r.number(at)
	if back == 0 || back > off {
		return p, outside // callers come first, so that every chain ends
	}
	p.call.site = off - back
	line, at := r.number(at)
	p.call.line = signed(line)
	if r.columns {
		p.call.column, at = r.number(at)
	}
	return p, at
}

// function is what an index knows of a function.
type function struct {
	name, start, file uint32
	lang              Lang
}

func (x *Index) function(number uint32) (function, bool) {
	at := uint64(number) * functionSize
	b := x.parts[partFunctions]
	if at+functionSize > uint64(len(b)) {
		return function{}, false
	}
	b = b[at : at+functionSize]
	le := binary.LittleEndian
	file := le.Uint32(b[8:])
	return function{le.Uint32(b), le.Uint32(b[4:]), file & maxIndexFiles, Lang(file >> 24)}, true
}

// path returns the path of a file. Number 0 is for no file.
func (x *Index) path(number uint32) string {
	b := x.parts[partFiles]
	if at := uint64(number) * 4; at+4 <= uint64(len(b)) {
		return x.string(binary.LittleEndian.Uint32(b[at:]))
	}
	return ""
}

// string returns a string by its number.
func (x *Index) string(number uint32) string {
	b := x.parts[partStrings]
	at := uint64(number) * 4
	if at+8 > uint64(len(b)) {
		return ""
	}
	start, end := binary.LittleEndian.Uint32(b[at:]), binary.LittleEndian.Uint32(b[at+4:])
	if start > end || uint64(end) > uint64(len(x.text)) {
		return ""
	}
	return x.text[start:end]
}
