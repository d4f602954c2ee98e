package symbol

import (
	"encoding/binary"
	"iter"
	"math"

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
		blocks := x.parts[partBlocks]
		var frames []Frame
		for ; len(blocks) >= blockSize; blocks = blocks[blockSize:] {
			if !x.blockPieces(blocks, &frames, yield) {
				return
			}
		}
	}
}

// blockPieces yields the pieces of the first of blocks, and reports whether more are
// wanted. frames is memory to use.
func (x *Index) blockPieces(blocks []byte, frames *[]Frame, yield func(Piece) bool) bool {
	le := binary.LittleEndian
	pos, end := uint64(le.Uint32(blocks)), uint64(math.MaxUint32)
	if len(blocks) >= 2*blockSize {
		end = uint64(le.Uint32(blocks[blockSize:]))
	}
	e := entry{block: le.Uint32(blocks[4:])}
	r, at := x.stream(), uint64(e.block)
	for pos < end {
		if at = r.next(&e, at); at >= outside {
			return true // damaged: what follows may be sound
		}
		if e.length == 0 {
			e.length = end - pos
		}
		piece := Piece{Virt: addr.Virt(x.base + pos), Size: e.length}
		pos += e.length
		if e.hole {
			continue
		}
		*frames, piece.Source = x.chain((*frames)[:0], e.location)
		piece.Frames = *frames
		if len(piece.Frames) > 0 && !yield(piece) {
			return false
		}
	}
	return true
}
