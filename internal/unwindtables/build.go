package unwindtables

import (
	"context"
	"errors"
	"os"

	"hallmark/buildid"
	"hallmark/internal/objects"
	"hallmark/internal/reach"
	"hallmark/unwind"
)

// made is the table of a file.
type made struct {
	table *unwind.Table
	built bool     // and not read from the cache
	owner uint32   // of the file, as ownerOf returns it
	key   tableKey // to keep it by, the zero one when it must not be kept
}

// emptyTable is that of a file without call frame information.
var emptyTable = new(unwind.Table)

// tableOf reads the table of a file from the cache, or builds it. Without the file there is
// none: an identity alone may be that of another content. A file that is not kept open is
// opened for as long as it takes.
func tableOf(ctx context.Context, s objects.Source, cache Cache, b *bounds) (made, error) {
	if !s.IsOpen() {
		opened, ok := s.Open()
		if !ok {
			return made{}, os.ErrNotExist
		}
		defer opened.Content.Close()
		s = opened
	}
	key := keyOf(s, cache)
	if table, err := cache.load(key); err == nil && !s.IsWritten(ctx) {
		return made{table: table}, nil
	}
	owner := ownerOf(s)
	if owner != 0 {
		key = tableKey{} // others can have written it
	}
	table, err := b.build(owner, func(small bool) (*unwind.Table, error) { return build(ctx, s, small) })
	return made{table, true, owner, key}, err
}

// keyOf returns what names the content of the file in the cache, the zero key when there is
// nothing to look for.
func keyOf(s objects.Source, cache Cache) tableKey {
	f, ok := s.Content.(*os.File)
	if !ok || !cache.names(s.ID) || !reach.KeepsTimes(f) {
		return tableKey{}
	}
	st := reach.StampOf(f)
	hash, err := buildid.Hash(f, st.Size)
	if err != nil {
		return tableKey{}
	}
	return tableKey{s.ID, st.Size, hash, st.Mtime, st.Inode, st.Ctime}
}

// build makes the table of the file that the identity was read of.
func build(ctx context.Context, s objects.Source, small bool) (*unwind.Table, error) {
	table, err := unwind.Build(s.Content, unwind.BuildOptions{Context: ctx, Small: small})
	if ctx.Err() != nil {
		return nil, ctx.Err() // what could not be read is not in the table
	}
	if s.IsWritten(ctx) {
		return nil, objects.ErrWritten
	}
	if errors.Is(err, unwind.ErrNotELF) {
		return emptyTable, nil
	}
	return table, err
}
