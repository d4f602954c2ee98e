package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"hallmark/addr"
)

// List says what is mapped, and from which files: inventory.bpf.c. It reads no identities.
// Its methods are for one goroutine.
type List struct {
	program *ebpf.Program
	look    *ebpf.Variable
	looks   uint64
	link    *link.Iter
	buffer  []byte
}

// NewList loads the program (Linux 6.1). The caller closes the List.
func NewList() (*List, error) {
	l := new(List)
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF list of mappings: %w", err), l.Close())
	}
	return l, nil
}

func (l *List) load() error {
	if err := checkKernel(); err != nil {
		return err
	}
	spec, err := loadInventory()
	if err != nil {
		return err
	}
	var objects struct {
		ListCode *ebpf.Program  `ebpf:"list_code"`
		Look     *ebpf.Variable `ebpf:"look"`
	}
	if err := spec.LoadAndAssign(&objects, loadOptions(spec)); err != nil {
		return err
	}
	l.program, l.look = objects.ListCode, objects.Look
	l.link, err = link.AttachIter(link.IterOptions{Program: l.program})
	return err
}

// Take returns the processes that have memory, by their numbers, and their executable
// mappings of files. What comes or goes meanwhile is there or not. Of the files the serial
// numbers, keys and identities are zero, and PID is the thread through which its memory can
// be reached: the first one, or another when that has ended.
func (l *List) Take() ([]*Process, error) {
	l.looks++
	err := l.look.Set(l.looks)
	if err == nil {
		err = l.read()
	}
	r := listReader{processes: map[uint32]*listed{}, files: map[uint64]*Code{}}
	if err == nil {
		err = r.read(l.buffer)
	}
	if err != nil {
		return nil, fmt.Errorf("listing mappings by BPF: %w", err)
	}
	return r.sorted(), nil
}

// read reads all records into the buffer.
func (l *List) read() error {
	records, err := l.link.Open()
	if err != nil {
		return err
	}
	defer records.Close()
	l.buffer = l.buffer[:0]
	for {
		l.buffer = slices.Grow(l.buffer, 64<<10)
		n, err := records.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+max(n, 0)]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, syscall.EAGAIN): // many VMAs, none of which is told of
			return err
		}
	}
}

// Kinds of records: enum listed_kind of inventoryrecords.h.
const (
	listedProcess = iota + 1
	listedFile
	listedArea
)

// listed is a process, and the thread through which it is seen: others that have not the
// same files open show the same memory.
type listed struct {
	*Process
	tid uint32
}

type listReader struct {
	processes map[uint32]*listed
	files     map[uint64]*Code // by their numbers, with what does not depend on the mapping
	current   *listed          // nil when another thread shows it
}

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
		known = &listed{&Process{PID: p.Tgid, Started: p.Started, Name: name(p.Name[:])}, p.Tid}
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
	r.files[f.Number] = &Code{File: File{Path: joinPath(path[:f.Path]), Validity: validityOf((*samplerValidity)(&f.Valid))}}
	return nil
}

func (r *listReader) area(b []byte) error {
	var a inventoryListedArea
	if err := decode(b, &a); err != nil {
		return err
	}
	file := r.files[a.Number]
	if file == nil {
		return fmt.Errorf("a mapping of file %d, which was not told", a.Number)
	}
	if r.current == nil {
		return nil
	}
	c := *file
	c.PID, c.Start, c.End, c.Offset = r.current.tid, addr.Abs(a.Start), addr.Abs(a.End), addr.Offset(a.Offset)
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

func (r *listReader) sorted() []*Process {
	list := make([]*Process, 0, len(r.processes))
	for _, p := range r.processes {
		list = append(list, p.Process)
	}
	slices.SortFunc(list, func(a, b *Process) int { return int(a.PID) - int(b.PID) })
	return list
}

// Close unloads the program.
func (l *List) Close() error {
	var err error
	if l.link != nil {
		err = l.link.Close()
	}
	return errors.Join(err, l.program.Close())
}
