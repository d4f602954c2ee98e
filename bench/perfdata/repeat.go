package main

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"os"

	"hallmark/perfdata"
)

// repeatUntil repeats a recording until the file is as large as wanted. With churn each
// repetition has processes of its own.
func repeatUntil(file, first string, size int64, churn bool) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := perfdata.NewWriter(out, perfdata.WriterOptions{InOrder: true})
	if err != nil {
		return err
	}
	full := func() (bool, error) {
		s, err := out.Stat()
		return err == nil && s.Size() >= size, err
	}
	return repeatInto(w, first, churn, full)
}

// streamUntil writes the same as a stream to standard output, which takes no room on a disk.
func streamUntil(first string, size int64, churn bool) error {
	out := &counter{to: bufio.NewWriterSize(os.Stdout, 1<<20)}
	w, err := perfdata.NewWriter(out, perfdata.WriterOptions{InOrder: true, Pipe: true})
	if err != nil {
		return err
	}
	full := func() (bool, error) { return out.written >= size, nil }
	return errors.Join(repeatInto(w, first, churn, full), out.to.Flush())
}

// counter counts what is written.
type counter struct {
	to      *bufio.Writer
	written int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.written += int64(len(b))
	return c.to.Write(b)
}

// repeatInto repeats a recording, later and later, until all is written that is wanted.
func repeatInto(w *perfdata.Writer, first string, churn bool, full func() (bool, error)) error {
	r := repetition{w: w, started: map[uint32]uint32{}, churn: churn}
	for {
		if err := r.write(first); err != nil {
			return err
		}
		r.number++
		if done, err := full(); err != nil || done {
			return errors.Join(err, w.Close())
		}
	}
}

// A repetition of a recording is one with its times moved. All but the first have only
// samples; with churn they also have what was recorded of processes that were started, which
// are others each time.
type repetition struct {
	w       *perfdata.Writer
	number  uint32
	later   uint64
	churn   bool
	started map[uint32]uint32 // the tasks that were started, numbered
}

func (p *repetition) write(file string) error {
	r, err := perfdata.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	events := map[*perfdata.Event]*perfdata.Event{}
	for i, e := range r.Events() {
		if p.number == 0 {
			if err := p.w.AddEvent(e); err != nil {
				return err
			}
		}
		events[e] = p.w.Events()[i]
	}
	if p.number == 0 {
		p.w.Info = *r.Info()
		p.w.Info.FirstSample, p.w.Info.LastSample = 0, 0
	}
	var first, last uint64
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			p.later += last - first + 1
			return nil
		}
		if err != nil {
			return err
		}
		s, sample := rec.(*perfdata.Sample)
		if sample {
			first, last = cmp.Or(first, s.Time), s.Time
		}
		if moved := p.move(rec, first); sample || moved || p.number == 0 {
			if err := p.w.Write(rec, events[r.Event()]); err != nil {
				return err
			}
		}
	}
}

// move moves a record in time, and to the processes of this repetition. It reports whether
// the record belongs into every repetition: perf gives no time to what it reports of processes
// that ran before.
func (p *repetition) move(r perfdata.Record, first uint64) bool {
	switch r := r.(type) {
	case *perfdata.Sample:
		r.Time += p.later
		r.PID, r.TID = p.task(r.PID), p.task(r.TID)
		return true
	case *perfdata.Comm:
		r.OwnerPID, r.OwnerTID = p.task(r.OwnerPID), p.task(r.OwnerTID)
		return p.moveID(&r.ID, first)
	case *perfdata.Mmap2:
		if r.Owner != ^uint32(0) { // the kernel's own
			r.Owner, r.Thread = p.task(r.Owner), p.task(r.Thread)
		}
		return p.moveID(&r.ID, first)
	case *perfdata.Task:
		if _, known := p.started[r.ChildTID]; !known && !r.Exited && first > 0 && r.Time >= first {
			p.started[r.ChildTID] = uint32(len(p.started))
		}
		r.ChildPID, r.ChildTID = p.task(r.ChildPID), p.task(r.ChildTID)
		r.ParentPID, r.ParentTID = p.task(r.ParentPID), p.task(r.ParentTID)
		return p.moveID(&r.ID, first)
	}
	return false
}

func (p *repetition) moveID(id *perfdata.ID, first uint64) bool {
	if first == 0 || id.Time < first {
		return false
	}
	id.Time += p.later
	id.PID, id.TID = p.task(id.PID), p.task(id.TID)
	return p.churn
}

// task returns the number that a task has in this repetition: numbers of the kernel are below
// 2^22 (PID_MAX_LIMIT), and are used again.
func (p *repetition) task(number uint32) uint32 {
	n, ok := p.started[number]
	if !ok || !p.churn || p.number == 0 {
		return number
	}
	const low, limit = 1 << 17, 1 << 22
	return low + uint32((uint64(p.number)*uint64(len(p.started))+uint64(n))%(limit-low))
}
