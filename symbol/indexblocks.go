package symbol

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"sync/atomic"

	"hallmark/addr"
)

// An index is checked by blocks of so many bytes of the file, each when something in it is first looked at.
const (
	indexBlockBits = 12
	indexBlockSize = 1 << indexBlockBits
	blockSumSize   = 4
)

// maxBlock is how many bytes of the stream a block of entries has at most: see the package comment.
const maxBlock = blockHeaderSize + granuleSize + granuleSize*(7+32+16+28+32)/8 + 1

// maxSize returns how many bytes a block of entries with this header has at most.
func (h blockHeader) maxSize() uint64 {
	entries, sites := (h.more()+1)*uint64(h.siteBits()+h.lineBits()+h.columnBits()), uint64(h.distanceBits()+h.firstLineBits())<<h.siteBits()
	return blockHeaderSize + h.more() + (entries+sites+7)/8
}

// blockSums returns where what the checksums of an index of this size are of begins, and how many there are.
func blockSums(size uint64) (start, n uint64) {
	n = (size + indexBlockSize - 1) >> indexBlockBits
	return aligned(indexHeaderSize + n*blockSumSize), n
}

func aligned(size uint64) uint64 { return (size + indexAlign - 1) &^ (indexAlign - 1) }

// sumBlocks writes the checksums of an index into it.
func sumBlocks(data []byte) {
	start, n := blockSums(uint64(len(data)))
	for i := range n {
		binary.LittleEndian.PutUint32(data[indexHeaderSize+i*blockSumSize:], crc32.Checksum(blockOf(data, start, i), castagnoli))
	}
}

// blockOf returns what the checksum with a number is of.
func blockOf(data []byte, start, i uint64) []byte {
	end := min((i+1)<<indexBlockBits, uint64(len(data)))
	return data[min(max(i<<indexBlockBits, start), end):end]
}

// A Substitute answers in place of an index that is damaged. Its methods are those of Index.
type Substitute interface {
	Table
	LookupOffsets(offsets []addr.Offset) []Result
	AppendFrames(dst []Frame, v addr.Virt) ([]Frame, Source)
	Close() error
}

// blocks are those of an index that are known to be whole, and what becomes of it when one is not.
type blocks struct {
	checked []atomic.Uint32 // a bit for each block
	damage  atomic.Pointer[FormatError]

	once       sync.Once
	substitute Substitute
}

// hasWhole reports whether n bytes at an offset of a part are as they were written; where the part ends before, what is
// behind it counts as well. Where they are not, the index is damaged from then on.
func (x *Index) hasWhole(part int, off, n uint64) bool {
	at := uint64(x.indexHeader.parts[part].off) + off
	first, last := at>>indexBlockBits, (at+n-1)>>indexBlockBits
	if n <= indexBlockSize && last>>5 < uint64(len(x.blocks.checked)) && x.isChecked(first) && x.isChecked(last) {
		return true
	}
	return n == 0 || x.check(first, last)
}

// hasWholeEntries is hasWhole for the entries of a granule, which begin at an offset of the stream. Few of them are long:
// the next block of the file may be in a part of the index that is not here yet, and is not looked at for nothing.
func (x *Index) hasWholeEntries(at uint64) bool {
	off := uint64(x.indexHeader.parts[partStream].off) + at
	first, last := off>>indexBlockBits, (off+maxBlock-1)>>indexBlockBits
	if last>>5 < uint64(len(x.blocks.checked)) && x.isChecked(first) && x.isChecked(last) {
		return true
	}
	if !x.hasWhole(partStream, at, blockHeaderSize) {
		return false
	}
	h := blockHeader(lowest(uint64(binary.LittleEndian.Uint32(x.stream[at:])), blockHeaderSize*8))
	return x.hasWhole(partStream, at, h.maxSize())
}

func (x *Index) isChecked(block uint64) bool {
	return x.blocks.checked[block>>5].Load()>>(block&31)&1 != 0
}

// newBlocks returns that nothing is known of n blocks. Behind the last one nothing can be damaged.
func newBlocks(n uint64) []atomic.Uint32 {
	checked := make([]atomic.Uint32, n>>5+2)
	checked[n>>5].Store(^uint32(0) << (n & 31))
	checked[n>>5+1].Store(^uint32(0))
	return checked
}

// check reads blocks that nobody has looked at before.
func (x *Index) check(first, last uint64) bool {
	start, n := blockSums(uint64(len(x.data)))
	for i := first; i <= min(last, n-1); i++ {
		if x.isChecked(i) {
			continue
		}
		sum := binary.LittleEndian.Uint32(x.data[indexHeaderSize+i*blockSumSize:])
		if crc32.Checksum(blockOf(x.data, start, i), castagnoli) != sum {
			msg := fmt.Sprintf("block %d does not agree with its checksum", i)
			x.blocks.damage.CompareAndSwap(nil, indexDamage(x.name, int64(i<<indexBlockBits), msg))
			return false
		}
		x.blocks.checked[i>>5].Or(1 << (i & 31))
	}
	return true
}

// Damage returns what is wrong with the index as far as it was looked at, nil for nothing. An index that is damaged
// answers nothing any more, but by its Substitute.
func (x *Index) Damage() error {
	if d := x.blocks.damage.Load(); d != nil {
		return d
	}
	return nil
}

// instead returns what answers in place of the index, nil for nothing.
func (x *Index) instead() Substitute {
	d := x.blocks.damage.Load()
	if d == nil {
		return nil
	}
	x.blocks.once.Do(func() {
		if x.Replace != nil {
			x.blocks.substitute = x.Replace(d)
		}
	})
	return x.blocks.substitute
}

// Check reads all of the index and returns what is wrong with it.
func (x *Index) Check() error {
	if len(x.data) > 0 {
		x.check(0, math.MaxInt64)
	}
	return x.Damage()
}
