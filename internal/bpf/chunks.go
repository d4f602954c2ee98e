package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// CHUNK and CHUNK_TAIL of unwind.h.
const (
	chunkSize = 1 << 20
	chunkTail = 4096
)

// chunks are the memory of the pool: pieces that are made when they are needed, which
// programs read and user space writes, as it has them mapped. Behind each piece is again
// how the next one begins.
type chunks struct {
	outer  *ebpf.Map // by the number of the piece
	spec   *ebpf.MapSpec
	pieces []chunk
	most   int
}

type chunk struct {
	m      *ebpf.Map
	mapped []byte
}

// size returns how many bytes there are.
func (c *chunks) size() uint32 { return uint32(len(c.pieces)) * chunkSize }

// grow makes one more piece, if there may be one. It reports whether it did.
func (c *chunks) grow() (bool, error) {
	if len(c.pieces) == c.most {
		return false, nil
	}
	m, err := ebpf.NewMap(c.spec)
	if err != nil {
		return false, fmt.Errorf("memory for unwind tables: %w", err)
	}
	mapped, err := unix.Mmap(m.FD(), 0, chunkSize+chunkTail, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		if err = c.outer.Put(uint32(len(c.pieces)), m); err != nil {
			err = errors.Join(err, unix.Munmap(mapped))
		}
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("memory for unwind tables: %w", err), m.Close())
	}
	c.pieces = append(c.pieces, chunk{m, mapped})
	return true, nil
}

// write copies b to a position of the pool that exists.
func (c *chunks) write(at uint32, b []byte) {
	for len(b) > 0 {
		n, off := at/chunkSize, at%chunkSize
		if n > 0 && off < chunkTail { // what is at the start of a piece, also behind the one before
			copy(c.pieces[n-1].mapped[chunkSize+off:], b)
		}
		written := copy(c.pieces[n].mapped[off:chunkSize], b)
		b = b[written:]
		at += uint32(written)
	}
}

// wait returns when no program runs any more that did when it was called: who changes a
// map of maps waits for that (maybe_wait_bpf_programs, kernel/bpf/syscall.c).
func (c *chunks) wait() error {
	if len(c.pieces) == 0 {
		return nil // there is nothing that a program could have seen
	}
	if err := c.outer.Put(uint32(0), c.pieces[0].m); err != nil {
		return fmt.Errorf("waiting for BPF programs: %w", err)
	}
	return nil
}

func (c *chunks) close() error {
	var errs []error
	for _, p := range c.pieces {
		errs = append(errs, unix.Munmap(p.mapped), p.m.Close())
	}
	c.pieces = nil
	return errors.Join(errs...)
}

// span is a piece of the pool, in bytes.
type span struct{ start, size uint32 }

func (s span) end() uint32 { return s.start + s.size }

// spans are pieces that are free, in the order of their places. None touches the next.
type spans []span

// take returns where there is room for so many bytes: in the smallest piece that has it.
func (s *spans) take(size uint32) (start uint32, ok bool) {
	best := -1
	for i, free := range *s {
		if free.size >= size && (best < 0 || free.size < (*s)[best].size) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	free := &(*s)[best]
	start = free.start
	if free.size == size {
		*s = slices.Delete(*s, best, best+1)
		return start, true
	}
	free.start += size
	free.size -= size
	return start, true
}

// give makes a piece free, as one with those that it touches.
func (s *spans) give(p span) {
	i, _ := slices.BinarySearchFunc(*s, p, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	*s = slices.Insert(*s, i, p)
	if i+1 < len(*s) && (*s)[i].end() == (*s)[i+1].start {
		(*s)[i].size += (*s)[i+1].size
		*s = slices.Delete(*s, i+1, i+2)
	}
	if i > 0 && (*s)[i-1].end() == (*s)[i].start {
		(*s)[i-1].size += (*s)[i].size
		*s = slices.Delete(*s, i, i+1)
	}
}
