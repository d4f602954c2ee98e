package objects

import (
	"context"
	"errors"
	"os"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/reach"
	"hallmark/reason"
)

// Source is a file with an identity, which can be read. The zero value is none.
type Source struct {
	set     *Set
	ID      buildid.ID
	seen    reach.Stamp    // of the content, when the identity was read
	Content reach.Handle   // nil when the file is not open
	way     *reach.Request // to open it again, nil when it could not be reached, or not yet
}

// ErrWritten is the error of a file that was overwritten after its identity was read.
var ErrWritten = errors.New("file was written while it was read")

// SourceOf returns an open file as a source, if it has this identity.
func SourceOf(f *os.File, id buildid.ID) (Source, error) {
	s := Source{ID: id, seen: reach.StampOf(f), Content: f}
	if info, err := contentcache.Read(context.Background(), f); err != nil || info.ID != id {
		return Source{}, ErrWritten
	}
	return s, nil
}

// Source returns the file of an object, none when it is not there, and whether it may still come.
func (o *Object) Source() (file Source, pending bool) {
	o.set.mu.Lock()
	defer o.set.mu.Unlock()
	if o.mixed || o.Content == nil && o.way == nil {
		return Source{}, !o.mixed && o.tried < o.asked
	}
	return Source{o.set, o.ID, o.seen, o.Content, o.way}, false
}

// IsReachable reports whether there is a file.
func (s Source) IsReachable() bool { return s.Content != nil || s.way != nil }

// IsOpen reports whether the file can be read.
func (s Source) IsOpen() bool { return s.Content != nil }

// Open opens the file in the way in which it was reached before, unless that is another one by now, or
// is gone. The caller closes its content.
func (s Source) Open() (file Source, ok bool) {
	if s.way == nil {
		return Source{}, false
	}
	found := reach.File(s.set.ctx, *s.way, 0)
	if found.Why == reason.None {
		s.set.mu.Lock()
		found.Why = s.set.judge(*s.way, s.ID, found)
		s.set.mu.Unlock()
	}
	if found.Why != reason.None || found.ID != s.ID {
		found.Close()
		return Source{}, false
	}
	s.Content, s.seen = found.File, found.Seen
	return s, true
}

// IsWritten reports whether the file is another one by now than its identity was read of.
func (s Source) IsWritten(ctx context.Context) bool {
	return changeOf(ctx, s.Content, s.seen, s.ID) != reach.Unchanged
}
