package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"hallmark/addr"
	"hallmark/buildid"
)

// Stock takes stock of what is mapped already: stock.h. Its methods are for one
// goroutine.
type Stock struct {
	// Read reads to the end what the kernel reports, nil for io.ReadAll. Whoever reads faults in
	// pages of other processes, which may take for ever.
	Read func(*os.File) ([]byte, error)

	objects stockObjects
	link    *link.Iter
	// again are the processes that must be looked at again, by their numbers.
	again map[uint32]look
	taken map[uint32]*Process
}

type stockObjects struct {
	TakeStock        *ebpf.Program
	Order, StockDone *ebpf.Variable
}

// A Process runs.
type Process struct {
	PID     uint32
	Started uint64 // ns, CLOCK_BOOTTIME
	Name    string // of the first thread
	// Code is the executable mappings of files, in the order of their addresses.
	Code []Code

	exec uint64 // which of its programs it executed
}

// Code is an executable mapping of a file.
type Code struct {
	// The serial number is 0 when the table took no entry, and the key is 0 when that was
	// because the file may be changing.
	File
	ID buildid.ID // zero if the kernel could not read it
}

// NewStock loads the program, with a table of files of its own. The caller closes
// the Stock. The error is errors.ErrUnsupported before Linux 6.7.
func NewStock() (*Stock, error) {
	s := new(Stock)
	err := checkStock()
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF inventory: %w", err), s.Close())
	}
	return s, nil
}

func (s *Stock) load() error {
	spec, err := loadSampler()
	if err != nil {
		return err
	}
	if err := configure(spec, false); err != nil {
		return err
	}
	it, err := loadIterator(spec, samplerProgTakeStock, loadOptions(spec))
	if err != nil {
		return err
	}
	s.objects = stockObjects{it.program, it.variables["order"], it.variables["stock_done"]}
	return s.attach()
}

func (s *Stock) attach() (err error) {
	s.link, err = link.AttachIter(link.IterOptions{Program: s.objects.TakeStock})
	return err
}

// checkStock returns an error where the kernel cannot have the program.
func checkStock() error {
	if !hasFunction(iterateVMAs) {
		return fmt.Errorf("iterator over VMAs (Linux 6.7): %w", errors.ErrUnsupported)
	}
	if err := checkPageSize(os.Getpagesize()); err != nil {
		return fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return nil
}

// Enter enters the files that these processes have mapped into the table of the
// Sampler, or all processes if there are none given, so that they are known before the
// first sample is in them. Nobody learns of them until then. The error is
// errors.ErrUnsupported where that cannot be, and without Options.Running.
func (s *Sampler) Enter(pids ...uint32) error {
	if s.stock == nil {
		return fmt.Errorf("entering running processes: %w", s.noStock)
	}
	return s.stock.enter(pids)
}

// ReadStock has Enter read what the kernel lists by a function: see Stock.Read.
func (s *Sampler) ReadStock(read func(*os.File) ([]byte, error)) {
	if s.stock != nil {
		s.stock.Read = read
	}
}

// EnterFiles is Enter, and returns each of the files once, as one process has it mapped. Those
// without a serial number are left out. With an error there may be some all the same.
func (s *Sampler) EnterFiles(pids ...uint32) ([]Code, error) {
	if s.stock == nil {
		return nil, fmt.Errorf("entering running processes: %w", s.noStock)
	}
	taken, _, err := s.stock.List(pids...)
	s.stock.taken = nil
	seen := map[uint32]bool{}
	var files []Code
	for _, p := range taken {
		for _, c := range p.Code {
			if c.Serial != 0 && !seen[c.Serial] {
				seen[c.Serial] = true
				files = append(files, c)
			}
		}
	}
	return files, err
}

// look is one look at all processes, or at one.
type look struct {
	samplerStockOrder
	tries int
}

// A process whose mappings change whenever it is looked at is given up after so many
// tries, with a pause between them.
const (
	maxLooks  = 50
	lookAgain = time.Millisecond
)

// List returns what these processes have mapped, or all processes if there are none
// given, and the processes that could not be looked at.
func (s *Stock) List(pids ...uint32) (taken map[uint32]*Process, unseen []uint32, err error) {
	s.taken = map[uint32]*Process{}
	unseen, err = s.take(1, pids)
	return s.taken, unseen, err
}

// enter is List without a list.
func (s *Stock) enter(pids []uint32) error {
	s.taken = nil
	_, err := s.take(0, pids)
	return err
}

func (s *Stock) take(list uint32, pids []uint32) (unseen []uint32, err error) {
	s.again = map[uint32]look{}
	for _, pid := range pids {
		s.again[pid] = look{samplerStockOrder: samplerStockOrder{Only: pid, List: list}}
	}
	if len(pids) == 0 {
		if err := s.run(look{samplerStockOrder: samplerStockOrder{List: list}}); err != nil {
			return nil, err
		}
	}
	for len(s.again) > 0 {
		looks := s.again
		s.again = map[uint32]look{}
		for pid, l := range looks {
			if l.tries > maxLooks {
				unseen = append(unseen, pid)
				delete(s.taken, pid)
				continue
			}
			if err := s.run(l); err != nil {
				return nil, err
			}
		}
	}
	return unseen, nil
}

// run takes one look.
func (s *Stock) run(l look) error {
	if l.tries > 0 {
		time.Sleep(lookAgain)
	}
	if err := s.objects.Order.Set(l.samplerStockOrder); err != nil {
		return fmt.Errorf("taking stock by BPF: %w", err)
	}
	records, err := s.link.Open()
	if err != nil {
		return fmt.Errorf("taking stock by BPF: %w", err)
	}
	defer records.Close()
	b, err := s.read(records)
	if err != nil {
		return fmt.Errorf("taking stock by BPF: %w", err)
	}
	return (&stockReader{stock: s, look: l, seen: map[uint32]bool{}}).read(b)
}

// read has the program run, which reads memory of processes.
func (s *Stock) read(records io.Reader) ([]byte, error) {
	if f, ok := records.(*os.File); ok && s.Read != nil {
		return s.Read(f)
	}
	return io.ReadAll(records)
}

// stockReader reads the records of one look.
type stockReader struct {
	stock   *Stock
	look    look
	seen    map[uint32]bool // processes, in this look
	current *Process        // nil when the records are of a process that was there already
}

// Kinds of records: enum stock_kind of events/stock.h.
const (
	stockProcess = iota + 1
	stockArea
	stockAgain
)

func (r *stockReader) read(b []byte) error {
	for len(b) > 0 {
		if len(b) < 8 {
			return fmt.Errorf("BPF record of %d bytes", len(b))
		}
		kind, size := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
		if size < 8 || uint64(size) > uint64(len(b)) {
			return fmt.Errorf("BPF record of %d bytes where there are %d", size, len(b))
		}
		if err := r.record(kind, b[:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

func (r *stockReader) record(kind uint32, b []byte) error {
	switch kind {
	case stockProcess:
		var p samplerStockProcess
		if err := decode(b, &p); err != nil {
			return err
		}
		r.process(&p)
	case stockArea:
		var a samplerStockArea
		if err := decode(b, &a); err != nil {
			return err
		}
		if r.current != nil {
			r.current.Code = append(r.current.Code, codeOf(&a, r.current.PID, b[unsafe.Sizeof(a):]))
		}
	case stockAgain:
		var a samplerStockAgain
		if err := decode(b, &a); err != nil {
			return err
		}
		r.lookAgain(&a)
	default:
		return fmt.Errorf("BPF record of kind %d", kind)
	}
	return nil
}

// process takes the process that the next records are of. Where the first thread has
// ended, each of the others shows the same: one look takes one of them.
func (r *stockReader) process(p *samplerStockProcess) {
	if r.seen[p.Tgid] {
		r.current = nil
		return
	}
	r.seen[p.Tgid] = true
	known := r.stock.taken[p.Tgid]
	if known == nil || r.look.From == 0 || known.Started != p.Started || known.exec != p.Exec {
		known = &Process{PID: p.Tgid, Started: p.Started, Name: name(p.Name[:]), exec: p.Exec}
		r.stock.taken[p.Tgid] = known
	}
	r.current = known
}

// lookAgain notes a process that must be looked at again. One whose first thread had
// ended is there already when another thread showed it.
func (r *stockReader) lookAgain(a *samplerStockAgain) {
	ofCurrent := r.current != nil && r.current.PID == a.Tgid
	if r.seen[a.Tgid] && !ofCurrent {
		return
	}
	next := look{samplerStockOrder: samplerStockOrder{Only: a.Tgid, List: r.look.List, From: a.From, Exec: a.Exec}}
	if a.Busy != 0 {
		next.tries = r.look.tries + 1
	}
	if a.From == 0 {
		delete(r.stock.taken, a.Tgid) // nothing was seen of it, and it may be gone
	}
	r.stock.again[a.Tgid] = next
}

func codeOf(a *samplerStockArea, pid uint32, path []byte) Code {
	c := Code{File: File{
		Serial:   uint32(a.Serial),
		Key:      a.Key,
		PID:      pid,
		Start:    addr.Abs(a.Start),
		End:      addr.Abs(a.End),
		Offset:   addr.Offset(a.Offset),
		Path:     joinPath(path),
		Validity: validityOf(&a.Valid),
	}}
	// Bytes that are no identity (a Go ID of odd characters) are left to the reader of the file.
	c.ID, _ = identityOf(&a.Id)
	return c
}

// StockStats count what taking stock did.
type StockStats struct {
	Processes uint64
	Areas     uint64 // executable mappings of files
	Read      uint64 // identities that were read, or found not to be there
	Left      uint64 // files that are to be read when a sample is in them
	Refused   uint64 // files that the table took no entry for
	Again     uint64 // processes that had to be looked at again
}

// Stats returns what was counted since the program was loaded.
func (s *Stock) Stats() (StockStats, error) {
	var n samplerStockCounters
	if err := s.objects.StockDone.Get(&n); err != nil {
		return StockStats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	return StockStats{n.Processes, n.Areas, n.Read, n.Left, n.Refused, n.Again}, nil
}

// Cost returns what the program took while costs were counted.
func (s *Stock) Cost() (Cost, error) { return costOf(s.objects.TakeStock) }

// Close unloads the program. The entries stay in the table.
func (s *Stock) Close() error {
	var err error
	if s.link != nil {
		err = s.link.Close()
	}
	return errors.Join(err, s.objects.TakeStock.Close())
}
