package bpf

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// List says what is mapped, and from which files: list.bpf.c. It reads no identities.
// Its methods are for one goroutine.
type List struct {
	// walk reads the trees of VMAs without a lock. It is nil where that cannot be proven
	// to be right.
	walk *listProgram
	// locked has the kernel go through all VMAs: for all processes without walk, else for
	// those that never kept still. It is nil until it is needed.
	locked *listProgram
}

// NewList loads the program (Linux 6.1). The caller closes the List.
func NewList() (*List, error) {
	l := new(List)
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF list of mappings: %w", err), l.Close())
	}
	return l, nil
}

func (l *List) load() (err error) {
	if err := checkKernel(); err != nil {
		return err
	}
	if l.walk, err = loadWalk(); l.walk != nil || err != nil {
		return err
	}
	l.locked, err = loadLocked()
	return err
}

// ErrLongList says that more is mapped on the machine than a List takes.
var ErrLongList = errors.New("too much is mapped to be listed at once")

// Bounds of a List: mappings, and bytes of records of one run. Ten thousand processes have
// half as many.
const (
	maxListed  = 1 << 19
	maxRecords = 64 << 20
)

// Take returns the processes that have memory, by their numbers, and their executable
// mappings of files. A mapping that comes or goes meanwhile is there or not. Of the files the serial
// numbers and identities are zero, the keys distinguish files whose validity is the same
// (subvolumes have such), and PID is the thread through which its memory can be reached: the
// first one, or another when that has ended. The error may be ErrLongList.
func (l *List) Take() ([]*Process, error) {
	list, err := l.take()
	if err != nil {
		return nil, fmt.Errorf("listing mappings by BPF: %w", err)
	}
	slices.SortFunc(list, func(a, b *Process) int { return int(a.PID) - int(b.PID) })
	return list, nil
}

func (l *List) take() ([]*Process, error) {
	if l.walk == nil {
		return l.takeLocked()
	}
	list, restless, err := l.walk.takeAll()
	if len(restless) == 0 || err != nil {
		return list, err
	}
	if l.locked == nil {
		if l.locked, err = loadLocked(); err != nil {
			return nil, err
		}
	}
	all, err := l.takeLocked()
	others := slices.DeleteFunc(all, func(p *Process) bool { return !restless[p.PID] })
	return append(list, others...), err
}

// takeLocked returns the processes as the kernel goes through them.
func (l *List) takeLocked() ([]*Process, error) {
	r := newListReader()
	if err := l.locked.beginLook(); err != nil {
		return nil, err
	}
	err := l.locked.run(inventoryListOrder{}, r)
	return r.taken(), err
}

// A process whose mappings change whenever it is looked at is left to the other way after
// so many tries, with a pause between them. The same holds for one of which there is ever
// more to be seen, in many more steps than most kernels let a process have mappings for.
const (
	listPatience = 10
	listAgain    = time.Millisecond
	stepsOfATry  = 50
)

// takeAll returns the processes, but for those that could not be seen at rest.
func (p *listProgram) takeAll() (list []*Process, restless map[uint32]bool, err error) {
	r := newListReader()
	if err := p.beginLook(); err != nil {
		return nil, nil, err
	}
	if err := p.run(inventoryListOrder{}, r); err != nil {
		return nil, nil, err
	}
	restless = map[uint32]bool{}
	for tries := map[uint32]int{}; len(r.again) > 0; {
		looks := r.again
		r.again = map[uint32]inventoryListedAgain{}
		for pid, l := range looks {
			tries[pid]++
			if l.Busy != 0 {
				tries[pid] += stepsOfATry - 1
			}
			if tries[pid] > p.patience*stepsOfATry {
				restless[pid] = true
				delete(r.processes, pid)
				continue
			}
			if err := p.lookAgain(l, r); err != nil {
				return nil, nil, err
			}
		}
	}
	return r.taken(), restless, nil
}

// lookAgain looks at one process, after a while if its mappings were just changed.
func (p *listProgram) lookAgain(l inventoryListedAgain, r *listReader) error {
	if l.Busy != 0 {
		time.Sleep(listAgain)
	}
	return p.run(inventoryListOrder{Only: l.Tgid, From: l.From, Exec: l.Exec}, r)
}

// Close unloads the programs.
func (l *List) Close() error { return errors.Join(l.walk.close(), l.locked.close()) }

// listProgram is a program that lists mappings, and is loaded.
type listProgram struct {
	program *ebpf.Program
	look    *ebpf.Variable
	order   *ebpf.Variable // nil where it is not known
	changed *ebpf.Variable // and this one: how often mappings had changed when they were read
	link    *link.Iter
	buffer  []byte

	patience int // how often a process is tried to be seen at rest
}

// loadListing returns the programs as they are to be loaded.
func loadListing() (*ebpf.CollectionSpec, error) {
	spec, err := loadInventory()
	if err != nil {
		return nil, err
	}
	return spec, errors.Join(setTrusted(spec), setSubvolumes(spec))
}

// loadWalk returns nil where the kernel does not report whether mappings have changed.
func loadWalk() (*listProgram, error) {
	spec, err := loadListing()
	if err != nil {
		return nil, err
	}
	opts := loadOptions(spec)
	if opts == nil || !countsChanges(opts.Programs.KernelTypes) {
		return nil, nil
	}
	it, err := loadIterator(spec, "list_processes", opts)
	if err != nil {
		return nil, err
	}
	p := &listProgram{program: it.program, look: it.variables["look"], order: it.variables["order"], changed: it.variables["changed"], patience: listPatience}
	return p, p.attach()
}

func loadLocked() (*listProgram, error) {
	spec, err := loadListing()
	if err != nil {
		return nil, err
	}
	it, err := loadIterator(spec, "list_code", loadOptions(spec))
	if err != nil {
		return nil, err
	}
	p := &listProgram{program: it.program, look: it.variables["look"]}
	return p, p.attach()
}

// countsChanges reports whether a process has a number that is odd while its mappings are
// changed: mm_lock_seq, a seqcount_t since Linux 6.13 and with some releases of 6.12.
func countsChanges(kernel *btf.Spec) bool {
	var mm *btf.Struct
	if err := kernel.TypeByName("mm_struct", &mm); err != nil {
		return false
	}
	field := memberNamed(mm, "mm_lock_seq")
	if field == nil {
		return false
	}
	_, ok := btf.UnderlyingType(field).(*btf.Struct)
	return ok
}

// memberNamed returns the type of a member of a structure, or of one without a name in it.
func memberNamed(s *btf.Struct, name string) btf.Type {
	for _, m := range s.Members {
		if m.Name == name {
			return m.Type
		}
		if inner, ok := m.Type.(*btf.Struct); ok && m.Name == "" {
			if t := memberNamed(inner, name); t != nil {
				return t
			}
		}
	}
	return nil
}

func (p *listProgram) attach() (err error) {
	p.link, err = link.AttachIter(link.IterOptions{Program: p.program})
	return err
}

// beginLook has all files reported anew.
func (p *listProgram) beginLook() error {
	var looks uint64
	if err := p.look.Get(&looks); err != nil {
		return err
	}
	return p.look.Set(looks + 1)
}

// run takes what the order says.
func (p *listProgram) run(order inventoryListOrder, r *listReader) error {
	if p.order != nil {
		if err := p.order.Set(order); err != nil {
			return err
		}
	}
	if err := p.read(); err != nil {
		return err
	}
	r.begin()
	return r.read(p.buffer)
}

// read reads all records into the buffer.
func (p *listProgram) read() error {
	records, err := p.link.Open()
	if err != nil {
		return err
	}
	defer records.Close()
	p.buffer = p.buffer[:0]
	for {
		p.buffer = slices.Grow(p.buffer, 64<<10)
		n, err := records.Read(p.buffer[len(p.buffer):cap(p.buffer)])
		p.buffer = p.buffer[:len(p.buffer)+max(n, 0)]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, syscall.EAGAIN): // many VMAs, none of which is reported
			return err
		case len(p.buffer) > maxRecords:
			return ErrLongList
		}
	}
}

func (p *listProgram) close() error {
	if p == nil {
		return nil
	}
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	return errors.Join(err, p.program.Close())
}
