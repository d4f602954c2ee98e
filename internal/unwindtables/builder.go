package unwindtables

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/unwind"
)

// Builder makes the unwind tables of the files that somebody asks for, beside the
// recording: that of a large program takes longer than a ring buffer waits.
type Builder struct {
	objects *objects.Set
	cache   Cache
	bounds  *bounds
	mu      sync.Mutex
	tables  map[*objects.Object]*builtTable
	turns   chan struct{} // one for each table that is being built
	stored  atomic.Int64  // bytes that were put into the cache
	workers sync.WaitGroup
	ctx     context.Context // done when nothing is waited for any more
	abandon context.CancelFunc
	most    time.Duration // to wait
}

type builtTable struct {
	table *unwind.Table // nil when there can be none
	done  bool
}

// tableBuilders build tables at a time, each by several goroutines.
const tableBuilders = 2

// NewBuilder returns a builder of the tables of objects. Its caller stops it.
func NewBuilder(o *objects.Set, cache Cache) *Builder {
	b := &Builder{objects: o, cache: cache, bounds: newBounds(), tables: map[*objects.Object]*builtTable{}, turns: make(chan struct{}, tableBuilders), most: patience.Long}
	b.ctx, b.abandon = context.WithCancel(context.Background())
	return b
}

// Table returns the table of a file, nil when it has none, and whether that is settled:
// the file may still be looked for, or its table be built.
func (b *Builder) Table(o *objects.Object) (*unwind.Table, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tables[o]; t != nil {
		return t.table, t.done || b.ctx.Err() != nil
	}
	if b.ctx.Err() != nil {
		return nil, true
	}
	file, pending := o.Source()
	if !file.IsReachable() {
		return nil, !pending
	}
	t := &builtTable{}
	b.tables[o] = t
	b.workers.Go(func() { b.build(t, file) })
	return nil, false
}

func (b *Builder) build(t *builtTable, file objects.Source) {
	select {
	case b.turns <- struct{}{}:
	case <-b.ctx.Done():
		return
	}
	built := b.read(file)
	<-b.turns
	b.mu.Lock()
	defer b.mu.Unlock()
	t.table, t.done = built, true
}

// read returns the table of a file from the cache, or builds it; nil when there can be none.
func (b *Builder) read(file objects.Source) *unwind.Table {
	m, err := tableOf(b.ctx, file, b.cache, b.bounds)
	if err != nil || !b.bounds.keep(m.owner, m.table) {
		return nil
	}
	if m.built {
		b.stored.Add(b.cache.keep(m.key, m.table))
	}
	return m.table
}

// Stop ends the work, and makes room in the cache.
func (b *Builder) Stop() {
	b.Wait()
	b.abandon()
	b.cache.pruneAfter(b.stored.Swap(0))
}

// Wait returns when every table that was asked for is built. A table that takes too long is
// abandoned: nothing comes of it.
func (b *Builder) Wait() {
	if b.ctx.Err() == nil && !patience.Wait(&b.workers, b.most) {
		b.abandon()
	}
}
