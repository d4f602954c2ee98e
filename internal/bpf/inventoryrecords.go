package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"hallmark/addr"
)

// Kinds of records: enum listed_kind of events/list.h.
const (
	listedProcess = iota + 1
	listedFile
	listedArea
	listedCode
	listedAgain
)

// listed is a process, and the thread through which it is seen: others that have not the
// same files open show the same memory.
type listed struct {
	*Process
	tid uint32
	run int // that it was last seen in
}

// listReader reads the records of one look.
type listReader struct {
	processes map[uint32]*listed
	files     map[uint64]*Code // by their numbers, with what does not depend on the mapping
	current   *listed          // nil when another thread shows it
	again     map[uint32]inventoryListedAgain
	run       int
	listed    int // mappings, in all runs
}

func newListReader() *listReader {
	return &listReader{processes: map[uint32]*listed{}, files: map[uint64]*Code{}, again: map[uint32]inventoryListedAgain{}}
}

// taken returns the processes, in no order.
func (r *listReader) taken() []*Process {
	list := make([]*Process, 0, len(r.processes))
	for _, p := range r.processes {
		list = append(list, p.Process)
	}
	return list
}

// begin begins with the records of another run.
func (r *listReader) begin() { r.run++ }

func (r *listReader) read(b []byte) error {
	for at := 0; at < len(b); {
		if len(b)-at < 8 {
			return fmt.Errorf("record of %d bytes at %d", len(b)-at, at)
		}
		kind, size := binary.NativeEndian.Uint32(b[at:]), binary.NativeEndian.Uint32(b[at+4:])
		if size < 8 || uint64(size) > uint64(len(b)-at) {
			return fmt.Errorf("record of %d bytes at %d, where there are %d", size, at, len(b)-at)
		}
		if err := r.record(kind, b[at:at+int(size)]); err != nil {
			return fmt.Errorf("record at %d: %w", at, err)
		}
		at += int(size)
	}
	return nil
}

func (r *listReader) record(kind uint32, b []byte) error {
	switch kind {
	case listedProcess:
		return r.process(b)
	case listedFile:
		return r.file(b)
	case listedArea:
		return r.area(b)
	case listedCode:
		return r.code(b)
	case listedAgain:
		return r.lookAgain(b)
	default:
		return fmt.Errorf("kind %d", kind)
	}
}

func (r *listReader) process(b []byte) error {
	var p inventoryListedProcess
	if err := decode(b, &p); err != nil {
		return err
	}
	known := r.processes[p.Tgid]
	switch {
	case known == nil, known.Started != p.Started:
		known = &listed{&Process{PID: p.Tgid, Started: p.Started, Name: name(p.Name[:])}, p.Tid, r.run}
		r.processes[p.Tgid] = known
	case known.tid != p.Tid:
		r.current = nil
		return nil
	}
	r.current = known
	return nil
}

func (r *listReader) file(b []byte) error {
	var f inventoryListedFile
	if err := decode(b, &f); err != nil {
		return err
	}
	path := b[unsafe.Sizeof(f):]
	if uint64(f.Path) > uint64(len(path)) {
		return fmt.Errorf("path of %d bytes where there are %d", f.Path, len(path))
	}
	r.files[f.Number] = &Code{File: File{Key: f.Inode, Path: joinPath(path[:f.Path]), Validity: validityOf((*samplerValidity)(&f.Valid))}}
	return nil
}

func (r *listReader) area(b []byte) error {
	var a inventoryListedArea
	if err := decode(b, &a); err != nil {
		return err
	}
	return r.add(a.Number, a.Start, a.End, a.Offset)
}

// add adds a mapping of a file to the process that is reported.
func (r *listReader) add(number, start, end, offset uint64) error {
	file := r.files[number]
	if file == nil {
		return fmt.Errorf("a mapping of file %d, which was not reported", number)
	}
	if r.current == nil {
		return nil
	}
	if r.listed++; r.listed > maxListed {
		return ErrLongList
	}
	c := *file
	c.PID, c.Start, c.End, c.Offset = r.current.tid, addr.Abs(start), addr.Abs(end), addr.Offset(offset)
	r.current.add(c)
	return nil
}

// add adds a mapping. The lock of the mappings is let go of when the buffer is full: what
// comes then may lie upon what was seen before, and is newer.
func (p *Process) add(c Code) {
	for len(p.Code) > 0 && p.Code[len(p.Code)-1].Start >= c.Start {
		p.Code = p.Code[:len(p.Code)-1]
	}
	if n := len(p.Code); n > 0 && p.Code[n-1].End > c.Start {
		p.Code[n-1].End = c.Start
	}
	p.Code = append(p.Code, c)
}

// code takes a process with its mappings, or with more of them. Where the first thread has
// ended, each of the others shows the same: one run takes one of them.
func (r *listReader) code(b []byte) error {
	var head inventoryListedCode
	if err := decode(b, &head); err != nil {
		return err
	}
	known := r.processes[head.Tgid]
	if known != nil && known.run == r.run {
		r.current = nil
		return nil
	}
	if known == nil || head.From == 0 || !known.is(&head) {
		known = &listed{Process: &Process{PID: head.Tgid, Started: head.Started, Name: name(head.Name[:]), exec: head.Exec}, tid: head.Tid}
		r.processes[head.Tgid] = known
	}
	known.run = r.run
	r.current = known
	delete(r.again, head.Tgid)
	return r.places(b[unsafe.Sizeof(head):])
}

// is reports whether more is reported of the same program of a process, through the same thread.
func (p *listed) is(head *inventoryListedCode) bool {
	return p.Started == head.Started && p.exec == head.Exec && p.tid == head.Tid
}

func (r *listReader) places(b []byte) error {
	var a inventoryListedPlace
	size := int(unsafe.Sizeof(a))
	r.current.Code = slices.Grow(r.current.Code, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		if err := decode(b, &a); err != nil {
			return err
		}
		if err := r.add(a.Number, a.Start, a.End, a.Offset); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain takes a process that must be looked at again, unless another of its threads
// has shown it.
func (r *listReader) lookAgain(b []byte) error {
	var a inventoryListedAgain
	if err := decode(b, &a); err != nil {
		return err
	}
	known := r.processes[a.Tgid]
	if known != nil && known.run == r.run && known != r.current {
		return nil
	}
	if a.From == 0 {
		delete(r.processes, a.Tgid)
	}
	r.again[a.Tgid] = a
	return nil
}
