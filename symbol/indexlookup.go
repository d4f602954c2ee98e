package symbol

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"

	"hallmark/addr"
)

// maxIndexDepth bounds how many frames an address can have.
const maxIndexDepth = 1 << 10

// AppendFrames appends the frames at a virtual address to dst, innermost first,
// and returns their source. It allocates nothing if dst has room. Func of each is
// left empty: what it should be has to be made, by Frame.Readable, and once for each
// function is enough.
func (x *Index) AppendFrames(dst []Frame, v addr.Virt) ([]Frame, Source) {
	empty, source := len(dst), SourceUnknown
	if at := x.find(uint64(v)); at.site != 0 {
		dst, source = x.chain(dst, at)
	}
	if x.blocks.damage.Load() == nil {
		return dst, source
	}
	return x.appendInstead(dst[:empty], v)
}

// appendInstead is AppendFrames of an index that is damaged.
func (x *Index) appendInstead(dst []Frame, v addr.Virt) ([]Frame, Source) {
	if s := x.instead(); s != nil {
		return s.AppendFrames(dst, v)
	}
	return dst, SourceUnknown
}

// location is a line in a site.
type location struct {
	site   uint32 // offset in the stream; 0 for none
	line   int32  // from the line where the site's function starts
	column uint32
}

// find returns the location of a virtual address.
func (x *Index) find(v uint64) location {
	v -= x.base
	if v>>32 != 0 {
		return location{}
	}
	at := x.block(uint32(v))
	b := x.from(at)
	if at == 0 || len(b) < blockHeaderSize+streamPadding || !x.hasWholeEntries(uint64(at)) {
		return location{}
	}
	h := blockHeader(binary.LittleEndian.Uint32(b))
	return x.location(at, h, entryAt(b[blockHeaderSize:], h.more(), v%granuleSize))
}

// block returns where the block is that has an offset from base, 0 if there is none.
func (x *Index) block(off uint32) uint32 {
	granule := uint64(off) >> granuleBits
	i := granule >> chapterBits * 4
	if directory := x.parts[partDirectory]; i+4 <= uint64(len(directory)) && x.hasWhole(partDirectory, i, 4) {
		i = (uint64(binary.LittleEndian.Uint32(directory[i:])) + granule%chapterSize) * uint64(x.width)
		if granules := x.parts[partGranules]; i+4 <= uint64(len(granules)) && x.hasWhole(partGranules, i, 4) {
			return uint32(lowest(uint64(binary.LittleEndian.Uint32(granules[i:])), uint(x.width)*8))
		}
	}
	return 0
}

// entryAt returns the number of the entry that has an address of a granule. starts has
// where those behind the first start, so many, and whatever follows.
func entryAt(starts []byte, more, off uint64) (n uint64) {
	const (
		each = 0x0101010101010101
		high = 0x80 * each
	)
	off = off*each | high
	for len(starts) >= 8 {
		// Of the bytes that are not above off, the high bit stays.
		found := (off - binary.LittleEndian.Uint64(starts)&^high) & high
		if more < 8 {
			return n + uint64(bits.OnesCount64(found&(1<<(more*8&63)-1)))
		}
		n += uint64(bits.OnesCount64(found))
		starts, more = starts[8:], more-8
	}
	return n
}

// entryExtent returns where an entry is in its granule.
func entryExtent(starts []byte, more, entry uint64) (e extent) {
	end := uint64(granuleSize)
	if entry > 0 && entry <= uint64(len(starts)) {
		e.start = uint64(starts[entry-1])
	}
	if entry < more && entry < uint64(len(starts)) {
		end = uint64(starts[entry])
	}
	if end > e.start {
		e.size = end - e.start
	}
	return e
}

// location returns the location of an entry of a block.
func (x *Index) location(block uint32, h blockHeader, entry uint64) location {
	size := h.siteBits() + h.lineBits() + h.columnBits()
	fields := (uint64(block) + blockHeaderSize + h.more()) * 8
	e := x.bits(fields + entry*uint64(size))
	site := fields + (h.more()+1)*uint64(size) + lowest(e, h.siteBits())*uint64(h.distanceBits()+h.firstLineBits())
	distance := uint32(lowest(x.bits(site), h.distanceBits()))
	if distance == 0 || distance > block {
		return location{}
	}
	first := lowest(x.bits(site+uint64(h.distanceBits())), h.firstLineBits())
	line := lowest(e>>h.siteBits(), h.lineBits())
	return location{block - distance, int32(first + line), uint32(lowest(e>>(h.siteBits()+h.lineBits()), h.columnBits()))}
}

// bits returns the bits at a place in the stream; there can be up to 57.
func (x *Index) bits(at uint64) uint64 {
	b := x.stream
	if at>>3+8 > uint64(len(b)) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[at>>3:]) >> (at & 7)
}

// lowest returns the lowest bits of n.
func lowest(n uint64, width uint) uint64 { return n & (1<<(width&63) - 1) }

// chain appends the frames of a location: that of the innermost function, and those
// of its callers.
func (x *Index) chain(dst []Frame, at location) ([]Frame, Source) {
	empty := len(dst)
	for range maxIndexDepth {
		b := x.from(at.site)
		if len(b) < maxSiteSize || !x.hasWhole(partStream, uint64(at.site), maxSiteSize) {
			break
		}
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, 1)
		}
		dst = dst[:len(dst)+1]
		f := &dst[len(dst)-1]
		if b[0]&siteInlined == 0 {
			source := Source(b[0] >> siteSource)
			if source == SourceUnknown {
				break
			}
			x.frame(f, decodeFunction(b[1:]), at)
			f.Inlined = false
			if b[0]&siteSymbol != 0 {
				f.join(x.symbol(b[1+functionSize:]))
			}
			if dst = dst[:empty+len(named(dst[empty:]))]; len(dst) == empty {
				source = SourceUnknown
			}
			return dst, source
		}
		function, call, size := x.inlined(b, at.site)
		if call.site >= at.site {
			break
		}
		x.frame(f, x.function(function>>1), at)
		f.Inlined = true
		if function&1 != 0 {
			file, _ := binary.Uvarint(b[size:])
			f.File = x.path(uint32(file))
		}
		at = call
	}
	return dst[:empty], SourceUnknown
}

// inlined reads the site of an inlined call, b, which is at an offset. It returns the
// number of the function, whose lowest bit says whether that of a file follows,
// the location of the call, and the size of all that. The caller's offset is lower in
// a sound index.
func (x *Index) inlined(b []byte, at uint32) (function uint32, call location, size uint) {
	flags := uint(b[0])
	size = 2 + flags>>1&3
	function = little(b[1:], size-1)
	back := flags>>3&3 + 1
	call.site = at - little(b[size:], back)
	size += back
	line := flags>>5&3 + 1
	call.line = int32(little(b[size:], line))
	size += line
	if x.flags&indexHasColumns != 0 {
		column := flags>>7 + 1
		call.column = little(b[size:], column)
		size += column
	}
	return function, call, size
}

// little returns the number in the first bytes of b, of which there are 8.
func little(b []byte, size uint) uint32 {
	return uint32(lowest(binary.LittleEndian.Uint64(b), size*8))
}

// frame makes f what is known of code of a function. Inlined is left as it is.
func (x *Index) frame(f *Frame, fn functionRecord, at location) {
	start, size := fn.name(), fn.size()
	if size == longName {
		start, size = x.place(partLong, fn.name())
	}
	f.Linkage = x.substring(start, size)
	f.File = x.path(fn.file())
	f.Func, f.Symbol, f.Local = "", "", false
	f.Line = int(fn.line() + uint32(at.line))
	f.Column = int(at.column)
	f.Start = int(fn.line())
	f.Lang = fn.lang()
}

// function returns the function with a number, one without a name if there is none.
func (x *Index) function(number uint32) functionRecord {
	b := x.parts[partFunctions]
	i := uint64(number) * functionSize
	if i+functionSize > uint64(len(b)) || !x.hasWhole(partFunctions, i, functionSize) {
		return functionRecord{}
	}
	return decodeFunction(b[i:])
}

// path returns the path of a file. Number 0 is for no file.
func (x *Index) path(number uint32) string {
	return x.substring(x.place(partFiles, uint64(number)))
}

// place returns where a string is in the text, and its size, of the many in a part.
func (x *Index) place(part int, number uint64) (at, size uint64) {
	b := x.parts[part]
	i := number * placeSize
	if i+placeSize > uint64(len(b)) || !x.hasWhole(part, i, placeSize) {
		return 0, 0
	}
	n := binary.LittleEndian.Uint64(b[i:])
	return n & (1<<32 - 1), n >> 32
}

// symbol returns the name of a symbol, of which b has the place.
func (x *Index) symbol(b []byte) string {
	at, n := binary.Uvarint(b)
	size, _ := binary.Uvarint(b[max(n, 0):])
	return x.substring(at, size)
}

// substring returns a part of the text.
func (x *Index) substring(at, size uint64) string {
	if at > uint64(len(x.text)) || size > uint64(len(x.text))-at || !x.hasWhole(partText, at, size) {
		return ""
	}
	return x.text[at : at+size]
}

// from returns the stream from an offset on, nothing if it is outside.
func (x *Index) from(at uint32) []byte {
	if uint64(at) > uint64(len(x.stream)) {
		return nil
	}
	return x.stream[at:]
}

// A Cursor answers from an index for many addresses. It keeps its place and the
// answer it gave last, so that addresses in order cost a fraction of what they cost
// otherwise, and others no more. It must not be used by several goroutines at once.
type Cursor struct {
	index  *Index
	frames []Frame
	source Source
	piece  extent // that frames are of, an offset from base
	at     location

	granule uint64 // number of the one that block is of, plus 1
	block   uint32
}

// extent is a range of addresses.
type extent struct{ start, size uint64 }

// Cursor returns a Cursor at no place.
func (x *Index) Cursor() *Cursor {
	return &Cursor{index: x, frames: make([]Frame, 0, 16)}
}

// Frames returns the frames at a virtual address, innermost first, and their source.
// They are valid until the next call, and must not be changed. Func of each is empty,
// as from AppendFrames.
func (c *Cursor) Frames(v addr.Virt) ([]Frame, Source) {
	off := uint64(v) - c.index.base
	if off-c.piece.start >= c.piece.size {
		c.move(off)
	}
	return c.frames, c.source
}

// move takes c to the piece that has an offset from base.
func (c *Cursor) move(off uint64) {
	var at location
	c.piece = extent{off, 1}
	if off>>32 == 0 {
		if granule := off>>granuleBits + 1; granule != c.granule {
			c.granule, c.block = granule, c.index.block(uint32(off))
		}
		if b := c.index.from(c.block); c.block != 0 && len(b) >= blockHeaderSize+streamPadding &&
			c.index.hasWholeEntries(uint64(c.block)) {
			h := blockHeader(binary.LittleEndian.Uint32(b))
			entry := entryAt(b[blockHeaderSize:], h.more(), off%granuleSize)
			at = c.index.location(c.block, h, entry)
			c.piece = entryExtent(b[blockHeaderSize:], h.more(), entry)
			c.piece.start += off &^ (granuleSize - 1)
		}
	}
	switch {
	case at.site == 0:
		c.frames, c.source = c.frames[:0], SourceUnknown
	case at.site == c.at.site && len(c.frames) > 0:
		c.frames[0].Line = int(uint32(c.frames[0].Line) + uint32(at.line-c.at.line))
		c.frames[0].Column = int(at.column)
	default:
		c.frames, c.source = c.index.chain(c.frames[:0], at)
	}
	c.at = at
	if c.index.blocks.damage.Load() != nil {
		c.frames, c.source = c.index.appendInstead(c.frames[:0], addr.Virt(c.index.base+off))
		c.piece, c.at = extent{off, 1}, location{}
	}
}

// A Piece is a part of the code that has one answer.
type Piece struct {
	Virt   addr.Virt
	Size   uint64
	Frames []Frame // innermost first; Func is empty, as from AppendFrames
	Source Source
}

// Pieces returns all that the index knows, in the order of addresses. The Frames of
// a Piece are valid until the next one. Those of an index that is damaged end early: see Damage.
func (x *Index) Pieces() iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		var piece Piece
		var last location
		for l := range x.located() {
			if l.location == last && l.virt == piece.Virt+addr.Virt(piece.Size) {
				piece.Size += l.size
				continue
			}
			if len(piece.Frames) > 0 && !yield(piece) {
				return
			}
			piece.Virt, piece.Size, last = l.virt, l.size, l.location
			piece.Frames, piece.Source = x.chain(piece.Frames[:0], l.location)
			if x.blocks.damage.Load() != nil {
				return
			}
		}
		if len(piece.Frames) > 0 {
			yield(piece)
		}
	}
}

// located is an entry of a block, or a part of one that reaches across granules.
type located struct {
	location
	virt addr.Virt
	size uint64
}

// located returns the entries of all granules, in the order of addresses.
func (x *Index) located() iter.Seq[located] {
	return func(yield func(located) bool) {
		end := uint64(len(x.parts[partDirectory])/4) << (chapterBits + granuleBits)
		for off := uint64(0); off < min(end, 1<<32); off += granuleSize {
			if !x.blockLocations(off, yield) || x.blocks.damage.Load() != nil {
				return
			}
		}
	}
}

// blockLocations yields the entries of the granule at an offset from base, and reports
// whether more are wanted.
func (x *Index) blockLocations(off uint64, yield func(located) bool) bool {
	at := x.block(uint32(off))
	b := x.from(at)
	if at == 0 || len(b) < blockHeaderSize+streamPadding || !x.hasWholeEntries(uint64(at)) {
		return true
	}
	h := blockHeader(binary.LittleEndian.Uint32(b))
	for i := range h.more() + 1 {
		e := entryExtent(b[blockHeaderSize:], h.more(), i)
		l := located{x.location(at, h, i), addr.Virt(x.base + off + e.start), e.size}
		if l.size > 0 && l.site != 0 && !yield(l) {
			return false
		}
	}
	return true
}
