package elffile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
)

// ErrTooMuch says that the tables of a file are more than can be in it: it has holes where they
// are said to be, or they are said to be in the same place. It arrives wrapped.
var ErrTooMuch = errors.New("far more than the file holds")

// Bounds of reading a file, as a multiple of what it holds. A table of symbols is looked through for
// single addresses, before it is read as a whole (oneByOne), and other tables refer to it: a file
// that is one table of symbols takes some eighty times its size.
const (
	freeBytes   = 1 << 20 // that every file has
	workFactor  = 128     // bytes that are looked at
	tableFactor = 4       // bytes of one table, which is in memory
)

// unknownStored is how much a file holds at most where its blocks do not say so.
const unknownStored = 256 << 20

// A budget is what all readers of one file may take together.
type budget struct {
	stored uint64                          // bytes that the file holds
	spent  atomic.Int64                    // bytes that were looked at
	ctx    atomic.Pointer[context.Context] // that ends the reading; nil for none
}

// err returns why nothing is read any more, nil as long as it is.
func (b *budget) err() error {
	if ctx := b.ctx.Load(); ctx != nil {
		return (*ctx).Err()
	}
	return nil
}

// spend takes n bytes of work, for what is at off.
func (m *Image) spend(off, n uint64) error {
	b := &m.budget
	if err := b.err(); err != nil {
		return err
	}
	if b.spent.Add(int64(min(n, MaxInflated))) > freeBytes+int64(workFactor*b.stored) {
		return m.tooMuch(off, "the tables of the file up to this one are %d bytes that have to be looked at", freeBytes+workFactor*b.stored)
	}
	return nil
}

// allow reports whether a table of n bytes at off may be there.
func (m *Image) allow(off, n uint64) error {
	if n > freeBytes+tableFactor*m.budget.stored {
		return m.tooMuch(off, "a table has %d bytes", n)
	}
	return nil
}

func (m *Image) tooMuch(off uint64, format string, n uint64) error {
	return m.Damage(&excess{off, fmt.Sprintf(format, n), m.budget.stored})
}

// excess is damage that is more than a file holds.
type excess struct {
	off    uint64
	what   string
	stored uint64
}

func (e *excess) Error() string {
	return fmt.Sprintf("offset %#x: %s, %v: %d bytes without holes", e.off, e.what, ErrTooMuch, e.stored)
}

func (e *excess) Unwrap() error { return ErrTooMuch }

// EndWith has a context end the reading of the file.
func (m *Image) EndWith(ctx context.Context) { m.budget.ctx.Store(&ctx) }

// Ended returns the error of the context that ends the reading, nil before it ends.
func (m *Image) Ended() error { return m.budget.err() }

// Renew lets readers of the file spend again what they could at first.
func (m *Image) Renew() { m.budget.spent.Store(0) }

// storedIn returns how many bytes are in what r reads, holes not counted. A reader that counts or
// bounds the reads of another one says which one, by Reads.
func storedIn(r io.ReaderAt) uint64 {
	switch r := r.(type) {
	case *os.File:
		return storedInFile(r)
	case interface{ Reads() io.ReaderAt }:
		return storedIn(r.Reads())
	case interface{ Size() int64 }:
		return uint64(max(0, r.Size()))
	}
	return unknownStored
}

// storedInFile returns how many bytes of a file are on its disk, or in memory. Blocks are what the
// owner has to pay for, but compressed file systems count what is left, and some count nothing
// before a file is a few seconds old: so a file may also hold what is said to be no hole.
func storedInFile(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return unknownStored
	}
	size := uint64(max(0, info.Size()))
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return min(size, unknownStored)
	}
	stored := 512 * uint64(max(0, st.Blocks))
	if stored+size/8 < size && stored+freeBytes < size {
		stored = max(stored, min(withoutHoles(f, int64(size)), unknownStored))
	}
	return min(size, stored)
}

// maxExtents is how many parts between holes are looked for.
const maxExtents = 1 << 10

// withoutHoles returns how many bytes of a file are not in holes, by lseek(2).
func withoutHoles(f *os.File, size int64) (n uint64) {
	const seekData, seekHole = 3, 4
	fd := int(f.Fd())
	at, err := syscall.Seek(fd, 0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	defer syscall.Seek(fd, at, io.SeekStart)
	for end, parts := int64(0), 0; end < size && parts < maxExtents; parts++ {
		start, err := syscall.Seek(fd, end, seekData)
		if err != nil {
			break // no more
		}
		if end, err = syscall.Seek(fd, start, seekHole); err != nil || end <= start {
			break
		}
		n += uint64(end - start)
	}
	return n
}
