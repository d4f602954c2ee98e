package unwind

import (
	"context"
	"io"
	"sync/atomic"
)

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

// boundedReader is a file of which only so much is read, and nothing once the build is to
// end. Both are errors that stay.
type boundedReader struct {
	r    io.ReaderAt
	ctx  context.Context // nil: nobody ends it
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
	if r.read.Load() > maxRead {
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
	return tooLarge(rows, functions)
}

// tooLarge returns an error if a table is not made of so many rows and functions.
func tooLarge(rows, functions int) error {
	if rows > maxRows || functions > maxFunctions {
		return unsupported("it says more than a table has room for")
	}
	return nil
}
