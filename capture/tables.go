package capture

import (
	"hallmark/internal/objects"

	"context"
	"slices"
	"sync"
	"time"

	"hallmark/internal/bpf"
	"hallmark/internal/patience"
	"hallmark/internal/reach"
	"hallmark/unwind"
)

// tables builds the unwind tables of the files that are recorded, beside the recording,
// and gives them to the BPF programs. A table is of a file's content, and is given under
// every serial number that the content has.
//
// What samples wait for comes first. While none waits, no table is kept in this
// process: the programs have their own copy, and the next one is read again from the cache.
type tables struct {
	objects *objects.Set
	kernel  tableTaker
	cache   tableCache
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
	waited   bool // for the workers, once
	stored   bool // tables were put into the cache
	holds    bool // some fileTable has its table
	stats    UnwindStats
	// refusedAt is when the first of refused was.
	refusedAt time.Time
	workers   sync.WaitGroup
	ctx       context.Context // done when nothing is built any more
	cancel    context.CancelFunc
	most      time.Duration // that is waited for what samples want at the end, and for workers
}

// tableTaker is what uses the tables: bpf.Tables.
type tableTaker interface {
	Put(serial uint32, t *unwind.Table) error
	PutNone(serial uint32) error
	PutUnavailable(serial uint32) error
	Has(serial uint32) bool
	Remove(serial uint32) error
	Stats() bpf.TablesStats
}

// fileTable is the table of a file, or why there is none. All under tables.mu.
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

func newTables(o *objects.Set, kernel tableTaker, cache tableCache) *tables {
	t := &tables{
		objects: o,
		kernel:  kernel,
		cache:   cache,
		files:   map[*objects.Object]*fileTable{},
		serials: map[uint32]*fileTable{},
		most:    patience.Long,
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.work, t.news = sync.NewCond(&t.mu), sync.NewCond(&t.mu)
	t.putVDSO()
	for range tableWorkers {
		t.workers.Go(t.run)
	}
	o.Reached = t.reached
	return t
}

// putVDSO gives the table of the vdso. It comes from the copy in this process. Without it stacks
// end there, which is reported.
func (t *tables) putVDSO() {
	image, err := reach.CopyOwnVDSO()
	if err != nil {
		return
	}
	table, err := unwind.Build(image, unwind.BuildOptions{})
	if err == nil && t.kernel.Put(bpf.VDSOSerial, table) == nil {
		t.vdso = table
	}
}

// expect notes that a file that was sampled is about to be looked for: reached tells the
// end of it.
func (t *tables) expect(o *objects.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.file(o)
	f.reaches++
	f.sampled = true
}

// reached notes that an attempt to reach a file has ended, or was not worth it.
func (t *tables) reached(o *objects.Object) {
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

// identified notes that the identity of a file is known, which may be all that it takes.
func (t *tables) identified(o *objects.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[o]; f != nil && f.phase == tableReaching {
		t.ask(f)
	}
}

// introduce has the table of a file built and given under a serial number. If later is not
// nil, the file is looked for in that way.
func (t *tables) introduce(serial uint32, o *objects.Object, later *reach.Request) {
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

// introduceMemory tells the programs that what looks like a file to them is memory, with
// code that was generated.
func (t *tables) introduceMemory(serial uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serials[serial] = &fileTable{outcome: tableThere, table: emptyTable}
	t.putNone(serial)
}

func (t *tables) putNone(serial uint32) {
	if !t.kernel.Has(serial) {
		_ = t.kernel.PutNone(serial) // or else the samples are finished here
	}
}

// file returns what is known of an object's table. The caller holds mu.
func (t *tables) file(o *objects.Object) *fileTable {
	f := t.files[o]
	if f == nil {
		f = &fileTable{object: o}
		t.files[o] = f
	}
	return f
}

// ask queues a file. The caller holds mu.
func (t *tables) ask(f *fileTable) {
	switch f.phase {
	case tableWorking:
		f.again = true
	case tableIdle, tableReaching:
		f.phase = tableQueued
		t.queue = append(t.queue, f)
		t.work.Signal()
	}
}

// missing asks for the table of a file that the programs had none of.
func (t *tables) missing(serial uint32) {
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

// retry has the programs ask again for the tables that found no room some time ago.
func (t *tables) retry() {
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

// want returns the table of a file for a sample that is being finished: nil when it is not
// there, and then whether it is worth to wait until finished tells of it.
func (t *tables) want(serial uint32) (table *unwind.Table, wait bool) {
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

// takeFinished returns the serial numbers of the files whose outcome came since the last
// call. When block is set it waits for some; there are none when no more will come.
func (t *tables) takeFinished(block bool) []uint32 {
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
func (t *tables) busy() bool {
	for _, f := range t.files {
		if f.wanted > 0 && f.phase != tableIdle {
			return true
		}
	}
	return false
}

// onlyWanted leaves out from now on what no sample waits for, and after some time everything.
func (t *tables) onlyWanted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = true
	t.work.Broadcast()
	late := time.AfterFunc(t.most, t.abandon)
	context.AfterFunc(t.ctx, func() { late.Stop() })
}

// abandon has nothing be built any more.
func (t *tables) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.cancel()
	t.work.Broadcast()
	t.news.Broadcast()
}

// dropAll lets go of all tables in this process: no sample waits.
func (t *tables) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.holds {
		return
	}
	t.holds = false
	for _, f := range t.files {
		f.table = nil
	}
}

// forget forgets serial numbers that will not be heard of again.
func (t *tables) forget(gone func(serial uint32) bool) {
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

// stop returns when nothing is built any more, or when a file that is read does not
// answer: nothing comes of that.
func (t *tables) stop() {
	t.mu.Lock()
	t.stopped = true
	t.work.Broadcast()
	again := t.waited
	t.waited = true
	t.mu.Unlock()
	if !again {
		patience.Wait(&t.workers, t.most)
	}
	t.abandon()
	t.mu.Lock()
	stored := t.stored
	t.stored = false
	t.mu.Unlock()
	if stored {
		t.cache.prune()
	}
}

// count returns what was counted so far.
func (t *tables) count() UnwindStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}
