package symbol

import (
	"encoding/binary"

	"hallmark/addr"
)

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
		if b := c.index.from(c.block); c.block != 0 && len(b) >= blockHeaderSize+streamPadding {
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
}
