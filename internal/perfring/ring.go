package perfring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/capability"
	"hallmark/perfdata"
)

// Ring is the buffer in which the kernel leaves the records of one CPU, see
// struct perf_event_mmap_page in include/uapi/linux/perf_event.h.
type Ring struct {
	FD   int // the event that owns the buffer
	mem  []byte
	data []byte // a power of two long
	page *unix.PerfEventMmapPage
	wake uint64 // after how many bytes of records the kernel wakes who waits
	used int    // bytes that the records took when it was last emptied
	Last uint64 // time of the last record, ns, CLOCK_MONOTONIC; 0 for none
}

// Sizes of the rings of a CPU, in pages, powers of two. Together they are less
// than kernel.perf_event_mlock_kb allows every user for a CPU by default: 516 KiB.
const (
	SamplePages = 64
	changePages = 32
	// CopyPages is for samples that copy stacks, where the user may lock so much memory:
	// tens of the largest.
	CopyPages = 1024
	// manyChangePages is for records of changes, where the user may lock so much memory: what
	// follows a lost one counts for nothing until the processes are looked at again.
	manyChangePages = 128
)

// ChangePages returns how many pages the ring of a CPU has for records of changes.
func ChangePages() int {
	if capability.CanLockMemory() {
		return manyChangePages
	}
	return changePages
}

// Size returns how many bytes of records the ring has room for.
func (r *Ring) Size() int { return len(r.data) }

// NewRing maps a ring of at most pages (a power of two) for the event fd, and a
// smaller one when this user may not lock that much memory. attr is that of the event, which has
// a watermark.
func NewRing(fd, pages int, attr *unix.PerfEventAttr) (*Ring, error) {
	size := os.Getpagesize()
	for ; pages > 0; pages /= 2 {
		mem, err := unix.Mmap(fd, 0, (pages+1)*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			r := &Ring{FD: fd, mem: mem, data: mem[size:], page: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0]))}
			r.wake = uint64(min(int(attr.Wakeup), len(r.data))) // ring_buffer_init in kernel/events/ring_buffer.c
			return r, nil
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			return nil, fmt.Errorf("mapping a perf ring buffer: %w", err)
		}
	}
	return nil, fmt.Errorf("mapping a perf ring buffer: %w (kernel.perf_event_mlock_kb and 'ulimit -l' limit it)", unix.EPERM)
}

// Share has another event write into the ring.
func (r *Ring) Share(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.FD); err != nil {
		return fmt.Errorf("sharing a perf ring buffer: %w", err)
	}
	return nil
}

// Close unmaps the ring. The event stays open.
func (r *Ring) Close() error { return unix.Munmap(r.mem) }

// Drain appends the records in the ring to buf, gives their room back to the
// kernel and calls each for every one of them, in the order in which they were
// written on this CPU. A record that each gets lies in buf's memory. It reports
// false when what is in the ring is no record: the rest of it is passed over.
func (r *Ring) Drain(buf []byte, each func(rec []byte)) ([]byte, bool) {
	head := atomic.LoadUint64(&r.page.Data_head)
	tail := atomic.LoadUint64(&r.page.Data_tail)
	from := len(buf)
	r.used = int(head - tail)
	buf = r.copyOut(buf, tail, head)
	atomic.StoreUint64(&r.page.Data_tail, head)
	for rest := buf[from:]; len(rest) > 0; {
		n, whole := perfdata.Size(rest)
		if !whole {
			return buf, false
		}
		each(rest[:n:n])
		rest = rest[n:]
	}
	return buf, true
}

// IsDue reports whether the kernel has woken who waits for the ring's records, or is about to: with each
// record that passes another multiple of the watermark (__perf_output_begin in kernel/events/ring_buffer.c).
func (r *Ring) IsDue() bool {
	passed := func(at uint64) uint64 { return max(at, 1) - 1 }
	head, tail := atomic.LoadUint64(&r.page.Data_head), atomic.LoadUint64(&r.page.Data_tail)
	return passed(head)/r.wake != passed(tail)/r.wake
}

// AnyDue reports whether one of the rings is due.
func AnyDue(rings []*Ring) bool { return slices.ContainsFunc(rings, (*Ring).IsDue) }

// maxChange is more than the longest record of a change takes: a mapping, with its path.
const maxChange = 8 << 10

// WasFull reports whether there may have been no room for a record of a change when the ring was
// last emptied.
func (r *Ring) WasFull() bool { return len(r.data)-r.used < min(maxChange, len(r.data)/2) }

func (r *Ring) copyOut(buf []byte, tail, head uint64) []byte {
	mask := uint64(len(r.data) - 1)
	from, to := tail&mask, head&mask
	if head-tail == 0 {
		return buf
	}
	if from < to {
		return append(buf, r.data[from:to]...)
	}
	buf = append(buf, r.data[from:]...)
	return append(buf, r.data[:to]...)
}

// LostBy returns how many records of an event and those that inherited it found no
// room in a ring, since Linux 6.0; before, 0.
func LostBy(fd int) uint64 {
	var b [16]byte // the event's value, then with PERF_FORMAT_LOST what it lost
	if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
		return 0
	}
	return binary.NativeEndian.Uint64(b[8:])
}
