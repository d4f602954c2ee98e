package capture

import (
	"sync"

	"hallmark/unwind"
)

// builtTables makes the unwind tables of the files that somebody asks for, beside the
// recording: that of a large program takes longer than a ring buffer waits.
type builtTables struct {
	objects *objects
	mu      sync.Mutex
	tables  map[*object]*builtTable
	turns   chan struct{} // one for each table that is being built
	workers sync.WaitGroup
}

type builtTable struct {
	table *unwind.Table // nil when there can be none
	done  bool
}

// tableBuilders build tables at a time, each by several goroutines.
const tableBuilders = 2

func newBuiltTables(o *objects) *builtTables {
	return &builtTables{objects: o, tables: map[*object]*builtTable{}, turns: make(chan struct{}, tableBuilders)}
}

// table returns the table of a file, nil when it has none, and whether that is settled:
// the file may still be looked for, or its table be built.
func (b *builtTables) table(o *object) (*unwind.Table, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tables[o]; t != nil {
		return t.table, t.done
	}
	file, pending := b.objects.contentOf(o)
	if file == nil {
		return nil, !pending
	}
	t := &builtTable{}
	b.tables[o] = t
	b.workers.Go(func() { b.build(t, file) })
	return nil, false
}

func (b *builtTables) build(t *builtTable, file content) {
	b.turns <- struct{}{}
	built, err := unwind.Build(file, unwind.BuildOptions{})
	<-b.turns
	if err != nil {
		built = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.table, t.done = built, true
}

// wait returns when every table that was asked for is built.
func (b *builtTables) wait() { b.workers.Wait() }

// contentOf returns the content of a file, nil when it is not there, and whether it may
// still come.
func (s *objects) contentOf(o *object) (file content, pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.mixed {
		return nil, false
	}
	return o.content, o.tried < o.asked
}
