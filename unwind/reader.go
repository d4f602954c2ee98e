package unwind

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"sync/atomic"
)

// reader reads the numbers of call frame instructions. It is cursor.Cursor without
// messages: these instructions are most of what there is to read.
type reader struct {
	b   []byte
	at  int
	bad bool // something was wanted that is not there
}

func (r *reader) more() bool { return r.at < len(r.b) && !r.bad }

// take returns the next n bytes, or nil.
func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)-r.at) {
		r.bad = true
		return nil
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) skip(n uint64) { r.take(n) }

func (r *reader) u8() uint8 {
	if r.at < len(r.b) {
		r.at++
		return r.b[r.at-1]
	}
	r.bad = true
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// unsigned reads an unsigned LEB128 number, of at most 64 bits.
func (r *reader) unsigned() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 {
		r.at++
		return uint64(r.b[r.at-1])
	}
	n, b, shift := r.leb()
	if shift > 63 && b > 1 {
		r.bad = true
	}
	return n
}

// signed reads a signed LEB128 number, of at most 64 bits.
func (r *reader) signed() int64 {
	n, b, shift := r.leb()
	if shift < 64 && b&0x40 != 0 {
		n |= ^uint64(0) << shift
	}
	return int64(n)
}

// leb returns a LEB128 number's bits, its last byte and how many bits it has.
func (r *reader) leb() (n uint64, b uint8, shift uint) {
	for {
		b = r.u8()
		if shift > 63 { // ten bytes hold 64 bits
			r.bad = true
		}
		if r.bad {
			return 0, 0, 0
		}
		n |= uint64(b&0x7f) << shift
		shift += 7
		if b < 0x80 {
			return n, b, shift
		}
	}
}

// address reads a number in an encoding DW_EH_PE: as it stands there, and as it is
// meant, for a section that begins at virt.
func (r *reader) address(virt uint64, encoding uint8) (raw, value uint64) {
	if encoding == peAligned {
		r.skip(-(virt + uint64(r.at)) & 7)
	}
	at := virt + uint64(r.at)
	switch encoding & 0x0f {
	case peAbsolute, peU8, peS8, peSigned:
		raw = r.u64()
	case peU4:
		raw = uint64(r.u32())
	case peS4:
		raw = uint64(int32(r.u32()))
	case peU2:
		raw = uint64(r.u16())
	case peS2:
		raw = uint64(int16(r.u16()))
	case peULEB:
		raw = r.unsigned()
	case peSLEB:
		raw = uint64(r.signed())
	default:
		r.bad = true
	}
	if encoding&0xf0 == pePCRel {
		return raw, raw + at
	}
	return raw, raw
}

// Limits on what a table is made of, so that no file takes more than a few seconds and
// 1 GiB of memory, whatever it claims: files may be sparse, and be those of strangers. The
// largest programs there are, browsers with all they link, have a tenth of it.
const (
	maxRead      = 2 << 30   // bytes of the file that are read for everything together
	maxSection   = 256 << 20 // bytes of one section, in the file and decompressed
	maxCFI       = 128 << 20 // the same of call frame information
	maxCIEs      = 1 << 17   // common entries in one section
	maxFunctions = 4 << 20   // in all layers together
	maxRows      = 16 << 20  // in all layers together
	maxLooked    = 256 << 20 // bytes of code that no function covers, and that is looked at
	maxPLT       = 16 << 20  // bytes of procedure linkage tables
	maxFollowed  = 16 << 20  // instructions that are followed
)

// smallShare is by what BuildOptions.Small divides the first of these limits.
const smallShare = 4

// limits are those that BuildOptions choose.
type limits struct {
	read            int64
	cfi             uint64
	functions, rows int
}

func (o *BuildOptions) limits() limits {
	if o.Small {
		return limits{maxRead / smallShare, maxCFI / smallShare, maxFunctions / smallShare, maxRows / smallShare}
	}
	return limits{maxRead, maxCFI, maxFunctions, maxRows}
}

// boundedReader is a file of which only so much is read, and nothing once the build is to
// end. Both are errors that stay.
type boundedReader struct {
	r    io.ReaderAt
	ctx  context.Context // nil: nobody ends it
	most int64           // that is read; 0: maxRead
	read atomic.Int64
}

func (r *boundedReader) ReadAt(b []byte, off int64) (int, error) {
	r.read.Add(int64(len(b)))
	if err := r.err(); err != nil {
		return 0, err
	}
	return r.r.ReadAt(b, off)
}

// Reads returns the file.
func (r *boundedReader) Reads() io.ReaderAt { return r.r }

func (r *boundedReader) err() error {
	if r.ctx != nil && r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if r.read.Load() > cmp.Or(r.most, maxRead) {
		return unsupported("it would have to be read for too long")
	}
	return nil
}

// err returns why the build ends early, nil if it does not.
func (b *builder) err() error {
	if err := b.bounds.err(); err != nil {
		return err
	}
	var rows, functions int
	for _, l := range b.layers {
		for _, p := range l.parts {
			rows += len(p.rows)
			functions += len(p.spans)
		}
	}
	return b.opts.limits().tooLarge(rows, functions)
}

// tooLarge returns an error if a table is not made of so many rows and functions.
func (l limits) tooLarge(rows, functions int) error {
	if rows > l.rows || functions > l.functions {
		return unsupported("it says more than a table has room for")
	}
	return nil
}
