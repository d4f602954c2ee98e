package capture

import (
	"context"
	"errors"
	"os"

	"hallmark/buildid"
	"hallmark/internal/reach"
	"hallmark/internal/trust"
	"hallmark/reason"
	"hallmark/unwind"
)

// source is what a table can be made of.
type source struct {
	objects *objects
	id      buildid.ID
	seen    reach.Stamp    // of the content, when the identity was read
	content reach.Handle   // nil when the file is not open
	way     *reach.Request // to open it again, nil when it could not be reached, or not yet
}

// isReachable reports whether there is something to make a table of.
func (s source) isReachable() bool { return s.content != nil || s.way != nil }

// made is the table of a file.
type made struct {
	table *unwind.Table
	built bool     // and not read from the cache
	key   tableKey // to keep it by, the zero one when it must not be kept
}

// emptyTable is that of a file without call frame information.
var emptyTable = new(unwind.Table)

// errWritten is the error of a file that was overwritten after its identity was read.
var errWritten = errors.New("file was written while it was read")

// table reads the table of a file from the cache, or builds it. Without the file there is
// none: an identity alone may be that of another content. A file that is not kept open is
// opened for as long as it takes.
func (s source) table(ctx context.Context, cache tableCache) (made, error) {
	if s.content == nil {
		f, seen := s.open()
		if f == nil {
			return made{}, os.ErrNotExist
		}
		defer f.Close()
		s.content, s.seen = f, seen
	}
	key := s.key(cache)
	if table, err := cache.load(key); err == nil && !s.written(ctx) {
		return made{table: table}, nil
	}
	if !s.isTrusted() {
		key = tableKey{}
	}
	table, err := s.build(ctx)
	return made{table, true, key}, err
}

// open opens the file in the way in which it was reached before, nil when that is another
// one by now, or is gone.
func (s source) open() (reach.Handle, reach.Stamp) {
	if s.way == nil {
		return nil, reach.Stamp{}
	}
	found := reach.File(s.objects.ctx, *s.way, 0)
	if found.Why == reason.None {
		s.objects.mu.Lock()
		found.Why = s.objects.judge(*s.way, s.id, found)
		s.objects.mu.Unlock()
	}
	if found.Why != reason.None || found.ID != s.id {
		found.Close()
		return nil, reach.Stamp{}
	}
	return found.File, found.Seen
}

// key returns what names the content of the file in the cache, the zero key when there is
// nothing to look for.
func (s source) key(cache tableCache) tableKey {
	f, ok := s.content.(*os.File)
	if !ok || !cache.names(s.id) || !reach.KeepsTimes(f) {
		return tableKey{}
	}
	st := reach.StampOf(f)
	hash, err := buildid.Hash(f, st.Size)
	if err != nil {
		return tableKey{}
	}
	return tableKey{s.id, st.Size, hash, st.Mtime, st.Inode, st.Ctime}
}

// written reports whether the file is another one by now than its identity was read of.
func (s source) written(ctx context.Context) bool {
	return (&object{content: s.content, seen: s.seen, id: s.id}).change(ctx) != reach.Unchanged
}

// isTrusted reports whether nobody but root and this user can have written the file.
func (s source) isTrusted() bool {
	f, ok := s.content.(*os.File)
	return ok && trust.TrustedFile(f)
}

// build makes the table of the file that the identity was read of.
func (s source) build(ctx context.Context) (*unwind.Table, error) {
	table, err := unwind.Build(s.content, unwind.BuildOptions{Context: ctx})
	if ctx.Err() != nil {
		return nil, ctx.Err() // what could not be read is not in the table
	}
	if s.written(ctx) {
		return nil, errWritten
	}
	if errors.Is(err, unwind.ErrNotELF) {
		return emptyTable, nil
	}
	return table, err
}
