package unwindtables

import (
	"context"
	"os"
	"sync/atomic"

	"hallmark/buildid"
	"hallmark/internal/objects"
	"hallmark/unwind"
)

// FileTables makes the unwind tables of files for who has stacks of an earlier time. It
// takes them from the cache that recordings keep, and keeps there what it makes. Its
// methods may be called by several goroutines at once.
type FileTables struct {
	cache  Cache
	bounds *bounds
	stored atomic.Int64
}

// NewFileTables uses the cache in Options.CacheDir, "" for none.
func NewFileTables(cacheDir string) *FileTables {
	return &FileTables{cache: NewCache(cacheDir), bounds: newBounds()}
}

// Build returns the table of an open file, which has this identity. A table in the cache
// for other content with the same identity is not for it, and it is not kept if others
// than root and this user may have written the file.
func (t *FileTables) Build(f *os.File, id buildid.ID) (*unwind.Table, error) {
	file, err := objects.SourceOf(f, id)
	if err != nil {
		return nil, err
	}
	m, err := tableOf(context.Background(), file, t.cache, t.bounds)
	if err != nil {
		return nil, err
	}
	if m.built {
		t.stored.Add(t.cache.keep(m.key, m.table))
	}
	return m.table, nil
}

// Close makes room in the cache, if something was put into it.
func (t *FileTables) Close() {
	t.cache.pruneAfter(t.stored.Swap(0))
}
