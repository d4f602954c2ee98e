package capture

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfring"
	"hallmark/perfdata"
)

// notices are what the kernel reports by records while BPF programs take the
// samples: kernel code that came or went, and events that were held back. Each CPU
// has an event of its own for them, which counts nothing, and a ring.
type notices struct {
	*tally
	attr    unix.PerfEventAttr
	rings   map[int]*perfring.Ring // by CPU
	epoll   int                    // readable when one of the rings is to be read
	decoder *perfdata.Decoder
	buf     []byte
}

// noticePages is the size of a ring, a power of two. Records come rarely.
const noticePages = 4

// noticeFields is what each record has beside itself: what must be in the
// sample type of every event that writes into the rings.
const noticeFields = perfdata.SampleTID | perfdata.SampleTime

func newNotices(t *tally, plan *perfring.Plan) (*notices, error) {
	n := &notices{tally: t, attr: plan.Changes, rings: map[int]*perfring.Ring{}}
	n.attr.Sample_type = uint64(noticeFields)
	n.attr.Bits = unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark | perfring.BitKsymbol
	n.attr.Wakeup = uint32(noticePages * os.Getpagesize() / 2)
	var err error
	if n.decoder, err = perfdata.NewDecoder(noticeFields); err != nil {
		return nil, err
	}
	n.epoll, err = newEpoll()
	return n, err
}

// open begins to listen on a CPU.
func (n *notices) open(cpu int) error {
	fd, err := perfring.OpenEvent(&n.attr, -1, cpu)
	if errors.Is(err, unix.ENODEV) { // the CPU went offline
		return err
	}
	if err != nil {
		return perfring.OpenError(CPUClock.String(), err)
	}
	r, err := perfring.NewRing(fd, noticePages, &n.attr)
	if err != nil {
		unix.Close(fd)
		return err
	}
	n.rings[cpu] = r
	return addTo(n.epoll, fd)
}

// join has a sampling event of a CPU say that it is held back.
func (n *notices) join(event, cpu int) error {
	return unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_OUTPUT, n.rings[cpu].FD)
}

// pending reports whether one of the rings is due.
func (n *notices) pending() bool {
	for _, r := range n.rings {
		if r.IsDue() {
			return true
		}
	}
	return false
}

// read takes all that was reported.
func (n *notices) read() {
	for _, r := range n.rings {
		n.readRing(r)
	}
}

func (n *notices) readRing(r *perfring.Ring) {
	var ok bool
	if n.buf, ok = r.Drain(n.buf[:0], n.handle); !ok {
		n.stats.Malformed++
	}
}

func (n *notices) handle(rec []byte) {
	r, err := n.decoder.Decode(rec)
	if err != nil {
		n.stats.Malformed++
		return
	}
	switch r := r.(type) {
	case *perfdata.Ksymbol:
		n.kernel.Learn(r)
	case *perfdata.Throttle:
		n.throttle(r)
	}
}

// drop ends listening on a CPU.
func (n *notices) drop(cpu int) error {
	r := n.rings[cpu]
	delete(n.rings, cpu)
	n.readRing(r)
	n.stats.Lost += perfring.LostBy(r.FD)
	return errors.Join(r.Close(), unix.Close(r.FD))
}

// finish ends listening.
func (n *notices) finish() error {
	var errs []error
	for cpu := range n.rings {
		errs = append(errs, n.drop(cpu))
	}
	return errors.Join(errs...)
}

func (n *notices) close() error { return errors.Join(n.finish(), unix.Close(n.epoll)) }
