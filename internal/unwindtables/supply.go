// Package unwindtables makes the unwind tables of files that are recorded: a [Supply] for programs in the
// kernel, a [Builder] for who unwinds copied stacks, and [FileTables] for stacks of an earlier time. What one
// of them built is kept in a [Cache], by the content of its file, from one recording to the next.
package unwindtables

import (
	"context"
	"slices"
	"sync"
	"time"

	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/reach"
	"hallmark/unwind"
)

// Supply builds the unwind tables of the files that are recorded, beside the recording,
// and gives them to the BPF programs. A table is of a file's content, and is given under
// every serial number that the content has.
//
// Tables that samples wait for come first. While none waits, no table is kept in this
// process: the programs have their own copy, and the next one is read again from the cache.
type Supply struct {
	objects *objects.Set
	kernel  Taker
	cache   Cache
	bounds  *bounds
	vdso    *unwind.Table // nil when it has none

	mu       sync.Mutex
	work     *sync.Cond // on mu: the queue has grown, or it is over
	news     *sync.Cond // on mu: the outcome of a file is known
	files    map[*objects.Object]*fileTable
	serials  map[uint32]*fileTable
	queue    []*fileTable
	refused  []uint32 // serial numbers whose tables found no room
	finished []uint32 // serial numbers whose outcome came since they were last taken
	last     bool     // only what samples wait for is built any more
	stopped  bool
	waited   bool  // for the workers, once
	stored   int64 // bytes of tables that were put into the cache
	holds    bool  // some fileTable has its table
	counts   Counts
	// refusedAt is when the first of refused was.
	refusedAt time.Time
	workers   sync.WaitGroup
	ctx       context.Context // done when nothing is built any more
	cancel    context.CancelFunc
	// Most is for how long what samples want is waited for at the end, and workers; patience.Long.
	Most time.Duration
}

// Taker is what uses the tables: bpf.Tables.
type Taker interface {
	Put(serial uint32, t *unwind.Table) error
	PutNone(serial uint32) error
	PutUnavailable(serial uint32) error
	Has(serial uint32) bool
	Remove(serial uint32) error
	Stats() bpf.TablesStats
}

// Counts are of tables and of files.
type Counts struct {
	Built, Cached uint64 // tables that were built, and that were read from the cache
	Unavailable   uint64 // files that there is no table for: out of reach, or damaged
	NoRoom        uint64 // tables that found no room in the kernel
}

// fileTable is the table of a file, or why there is none. All under Supply.mu.
type fileTable struct {
	object  *objects.Object
	serials []uint32
	phase   tablePhase
	outcome tableOutcome
	again   bool           // it was asked for while it was worked at
	reaches int            // attempts to reach the file that have not ended
	later   *reach.Request // how the file may be reached, if that is to be tried only when need be
	sampled bool           // a sample is in it, or in a process that has it
	refused bool           // there was no room in the kernel
	wanted  int            // by how many samples
	table   *unwind.Table  // as long as samples wait
	owner   uint32         // whose share the table takes
}

// isReachable reports whether there is something to make the table of.
func (f *fileTable) isReachable() bool {
	file, _ := f.object.Source()
	return file.IsReachable()
}

type tablePhase uint8

const (
	tableIdle tablePhase = iota
	tableQueued
	tableWorking
	tableReaching // waits for the file
)

type tableOutcome uint8

const (
	tableUnknown tableOutcome = iota
	tableThere
	tableNone // it will not come
)

// tableWorkers build tables at a time. Each uses several threads where that helps, and
// takes a few times the size of the file's call frame information.
const tableWorkers = 2

// NewSupply returns a supply of the programs with the tables of objects. Its caller stops it.
func NewSupply(o *objects.Set, kernel Taker, cache Cache) *Supply {
	t := &Supply{
		objects: o,
		kernel:  kernel,
		cache:   cache,
		bounds:  newBounds(),
		files:   map[*objects.Object]*fileTable{},
		serials: map[uint32]*fileTable{},
		Most:    patience.Long,
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.work, t.news = sync.NewCond(&t.mu), sync.NewCond(&t.mu)
	t.putVDSO()
	for range tableWorkers {
		t.workers.Go(t.run)
	}
	o.Reached = t.Reached
	return t
}

// putVDSO gives the table of the vdso. It comes from the copy in this process. Without it stacks
// end there, which is reported.
func (t *Supply) putVDSO() {
	image, err := reach.CopyOwnVDSO()
	if err != nil {
		return
	}
	table, err := unwind.Build(image, unwind.BuildOptions{})
	if err == nil && t.kernel.Put(bpf.VDSOSerial, table) == nil {
		t.vdso = table
	}
}

// Expect notes that a file that was sampled is about to be looked for, until reached
// is called with it.
func (t *Supply) Expect(o *objects.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.file(o)
	f.reaches++
	f.sampled = true
}

// Reached notes that an attempt to reach a file has ended, or was not worth it.
func (t *Supply) Reached(o *objects.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[o]
	if f == nil {
		return
	}
	f.reaches--
	if f.phase == tableReaching {
		t.ask(f)
	} else if f.outcome == tableNone && f.isReachable() {
		t.ask(f) // another process than the first had it
	}
}

// Identified notes that the identity of a file is known, which may be all that it takes.
func (t *Supply) Identified(o *objects.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[o]; f != nil && f.phase == tableReaching {
		t.ask(f)
	}
}

// Introduce has the table of a file built and given under a serial number. If later is not
// nil, the file is looked for in that way.
func (t *Supply) Introduce(serial uint32, o *objects.Object, later *reach.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.file(o)
	if t.serials[serial] == nil {
		t.serials[serial] = f
		f.serials = append(f.serials, serial)
	}
	if later == nil {
		f.sampled = true
	} else if f.later == nil {
		f.later = later
	}
	if !t.kernel.Has(serial) {
		t.ask(f)
	}
}

// IntroduceMemory marks for the programs that what looks like a file to them is memory, with
// code that was generated.
func (t *Supply) IntroduceMemory(serial uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serials[serial] = &fileTable{outcome: tableThere, table: emptyTable}
	t.putNone(serial)
}

func (t *Supply) putNone(serial uint32) {
	if !t.kernel.Has(serial) {
		_ = t.kernel.PutNone(serial) // or else the samples are finished here
	}
}

// file returns what is known of an object's table. The caller holds mu.
func (t *Supply) file(o *objects.Object) *fileTable {
	f := t.files[o]
	if f == nil {
		f = &fileTable{object: o}
		t.files[o] = f
	}
	return f
}

// ask queues a file. The caller holds mu.
func (t *Supply) ask(f *fileTable) {
	switch f.phase {
	case tableWorking:
		f.again = true
	case tableIdle, tableReaching:
		f.phase = tableQueued
		t.queue = append(t.queue, f)
		t.work.Signal()
	}
}

// Missing asks for the table of a file that the programs had none of.
func (t *Supply) Missing(serial uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch f := t.serials[serial]; {
	case f == nil:
	case f.object == nil:
		t.putNone(serial)
	default:
		f.sampled = true
		if f.phase == tableIdle && !t.kernel.Has(serial) {
			t.ask(f)
		}
	}
}

// retryAfter is when a table that there was no room for is tried again: others may not be
// used any more by then.
const retryAfter = 5 * time.Second

// Retry has the programs ask again for the tables that found no room some time ago.
func (t *Supply) Retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refused) == 0 || time.Since(t.refusedAt) < retryAfter {
		return
	}
	for _, serial := range t.refused {
		_ = t.kernel.Remove(serial) // or else it stays unavailable
	}
	t.refused = nil
}

// Want returns the table of a file for a sample that is being finished: nil when it is not
// there, and then whether it is worth to wait until finished reports it.
func (t *Supply) Want(serial uint32) (table *unwind.Table, wait bool) {
	if serial == bpf.VDSOSerial {
		return t.vdso, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.serials[serial]
	switch {
	case f == nil || f.phase == tableIdle && f.outcome == tableNone:
		return nil, false
	case f.table != nil:
		return f.table, false
	}
	f.wanted++
	f.sampled = true
	if f.phase == tableIdle {
		t.ask(f)
	}
	return nil, true
}

// TakeFinished returns the serial numbers of the files whose outcome came since the last
// call. When block is set it waits for some; there are none when no more will come.
func (t *Supply) TakeFinished(block bool) []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for block && len(t.finished) == 0 && !t.stopped && t.busy() {
		t.news.Wait()
	}
	finished := t.finished
	t.finished = nil
	return finished
}

// busy reports whether the outcome of a file is still to come that samples wait for.
func (t *Supply) busy() bool {
	for _, f := range t.files {
		if f.wanted > 0 && f.phase != tableIdle {
			return true
		}
	}
	return false
}

// OnlyWanted leaves out from now on what no sample waits for, and after some time everything.
func (t *Supply) OnlyWanted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = true
	t.work.Broadcast()
	late := time.AfterFunc(t.Most, t.abandon)
	context.AfterFunc(t.ctx, func() { late.Stop() })
}

// abandon has nothing be built any more.
func (t *Supply) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.cancel()
	t.work.Broadcast()
	t.news.Broadcast()
}

// DropAll lets go of all tables in this process: no sample waits.
func (t *Supply) DropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.holds {
		return
	}
	t.holds = false
	for _, f := range t.files {
		if f.table != nil {
			t.bounds.release(f.owner, f.table)
		}
		f.table = nil
	}
}

// Forget forgets serial numbers that will not be heard of again.
func (t *Supply) Forget(gone func(serial uint32) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for serial, f := range t.serials {
		if !gone(serial) {
			continue
		}
		delete(t.serials, serial)
		f.serials = slices.DeleteFunc(f.serials, func(s uint32) bool { return s == serial })
		_ = t.kernel.Remove(serial) // what cannot be removed is not asked for any more
	}
}

// Stop returns when nothing is built any more, or when a file that is read does not
// answer: nothing comes of that.
func (t *Supply) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.work.Broadcast()
	again := t.waited
	t.waited = true
	t.mu.Unlock()
	if !again {
		patience.Wait(&t.workers, t.Most)
	}
	t.abandon()
	t.mu.Lock()
	stored := t.stored
	t.stored = 0
	t.mu.Unlock()
	t.cache.pruneAfter(stored)
}

// Counts returns what was counted so far.
func (t *Supply) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
