package symbol

import (
	"encoding/binary"
	"iter"

	"hallmark/addr"
)

// A Piece is a part of the code that has one answer.
type Piece struct {
	Virt   addr.Virt
	Size   uint64
	Frames []Frame // innermost first; Func is empty, as from AppendFrames
	Source Source
}

// Pieces returns all that the index knows, in the order of addresses. The Frames of
// a Piece are valid until the next one.
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
			if !x.blockLocations(off, yield) {
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
	if at == 0 || len(b) < blockHeaderSize+streamPadding {
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
