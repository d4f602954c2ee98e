// Package blob is the storage below a symbol server: objects by key, in a directory or in a
// bucket of an S3-compatible service.
//
// The interface is what several stateless servers need to share one store without a lock
// service: an object is created once or replaced by compare-and-swap, and a reader sees all
// of an object or nothing. An operation that returned without an error survives a crash of
// the process and of the machine.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// Errors of stores. They arrive wrapped.
var (
	// ErrNotExist says that there is no object with the key.
	ErrNotExist = errors.New("no such object")
	// ErrExist says that there is an object with the key already.
	ErrExist = errors.New("object exists")
	// ErrChanged says that the object is not the one that the tag is of, or is gone.
	ErrChanged = errors.New("object has changed")
	// ErrFull says that the store has no room.
	ErrFull = errors.New("no space is left in the store")
	// ErrUnavailable says that the store did not answer, or answered with a failure of its own.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrKey says that a key is none: see CheckKey.
	ErrKey = errors.New("not a key")
)

// Info describes an object.
type Info struct {
	Key  string
	Size int64 // in bytes
	// Tag is an opaque name of the content. An object that was replaced by other content has
	// another one. [Store.List] may leave it out.
	Tag string
	// Stamp is such a name, too, where List leaves out the tag: List has it.
	Stamp    string
	Modified time.Time
}

// A Store keeps objects. Its methods may be called by several goroutines at once, and several
// processes may use the same storage.
type Store interface {
	// Get returns the bytes of an object from offset off on, n of them or up to the end if n
	// is negative, for the caller to close. An offset behind the end, or at the end of an
	// object that is not empty, is an error. The Info is of the whole object. All bytes are
	// of one content: a reader that cannot go on with it fails.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Info, error)
	// Head returns the Info of an object.
	Head(ctx context.Context, key string) (Info, error)
	// PutIfAbsent stores the size bytes of r under a key that has no object, else the error is
	// ErrExist. A reader that has more or fewer bytes is an error, and nothing is stored.
	PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (Info, error)
	// PutIfMatch replaces the object with this tag, else the error is ErrChanged. It is for
	// small objects, of at most MaxSwap bytes.
	PutIfMatch(ctx context.Context, key, tag string, data []byte) (Info, error)
	// List returns the objects whose keys begin with prefix, in the order of keys.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. That there is none is no error.
	Delete(ctx context.Context, key string) error
	// String returns where the store is, without any secret.
	String() string
}

// An Opener is a Store whose objects can be read at any place without a request for each.
type Opener interface {
	// Open returns a reader of an object for the caller to close.
	Open(ctx context.Context, key string) (ReadAtCloser, Info, error)
}

// A ConditionalDeleter is a Store that can remove an object on condition that nobody changed it.
type ConditionalDeleter interface {
	// DeleteIfMatch removes the object with this tag, else the error is ErrChanged.
	DeleteIfMatch(ctx context.Context, key, tag string) error
}

// A Replacer is a Store that replaces objects of any size on condition that nobody changed them.
type Replacer interface {
	// ReplaceIfMatch is PutIfMatch for the size bytes of r.
	ReplaceIfMatch(ctx context.Context, key, tag string, r io.Reader, size int64) (Info, error)
}

// Replace replaces the object with a tag, else the error is ErrChanged. Where the store is no Replacer, nobody finds the
// object for a moment.
func Replace(ctx context.Context, s Store, key, tag string, r io.Reader, size int64) (Info, error) {
	if p, ok := s.(Replacer); ok {
		return p.ReplaceIfMatch(ctx, key, tag, r, size)
	}
	switch info, err := s.Head(ctx, key); {
	case errors.Is(err, ErrNotExist) || err == nil && info.Tag != tag:
		return Info{}, fmt.Errorf("%s: %w", key, ErrChanged)
	case err != nil:
		return Info{}, err
	}
	if err := s.Delete(ctx, key); err != nil {
		return Info{}, err
	}
	return s.PutIfAbsent(ctx, key, r, size)
}

// A ReadAtCloser reads at any place until it is closed.
type ReadAtCloser interface {
	io.ReaderAt
	io.Closer
}

// MaxSwap is the largest size in bytes of an object that PutIfMatch stores.
const MaxSwap = 1 << 20

// maxKey is the largest number of bytes of a key: S3 has 1024, with the prefix of the store.
const maxKey = 700

// CheckKey returns an error if key is none. A key has one or more names of letters, digits,
// '-', '_', '.', '+' and '=', with slashes between them. No name begins with a dot, and none is
// longer than 255 bytes. So a key is a relative path that leads nowhere else.
func CheckKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("%.40q: %w", key, ErrKey)
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || name[0] == '.' || len(name) > 255 || strings.IndexFunc(name, isForeign) >= 0 {
			return fmt.Errorf("%.100q: %w", key, ErrKey)
		}
	}
	return nil
}

func isForeign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.+=", r))
}

// Read returns all of an object, which has at most most bytes.
func Read(ctx context.Context, s Store, key string, most int64) ([]byte, Info, error) {
	r, info, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, Info{}, err
	}
	defer r.Close()
	if info.Size > most {
		return nil, Info{}, fmt.Errorf("%s: %d bytes, more than %d", key, info.Size, most)
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, Info{}, err
	}
	if int64(len(b)) != info.Size {
		return nil, Info{}, fmt.Errorf("%s: %d bytes of %d: %w", key, len(b), info.Size, ErrUnavailable)
	}
	return b, info, nil
}

// Open returns a reader of an object in any store, for the caller to close. Where the store is
// no Opener, each ReadAt is a request that ends with ctx.
func Open(ctx context.Context, s Store, key string) (ReadAtCloser, Info, error) {
	if o, ok := s.(Opener); ok {
		return o.Open(ctx, key)
	}
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	return &ranges{ctx, s, info}, info, nil
}

// ranges reads an object by one request for each ReadAt.
type ranges struct {
	ctx   context.Context
	store Store
	info  Info
}

func (r *ranges) Close() error { return nil }

// rangeTime is in which a service has to send what one request asks for, which is a few megabytes at most. Nobody
// else ends a request for an object that several read.
const rangeTime = 2 * time.Minute

func (r *ranges) ReadAt(p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, rangeTime)
	defer cancel()
	if n, err = r.readAt(ctx, p, off); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && r.ctx.Err() == nil {
		err = fmt.Errorf("%s: %w: it took longer than %v", r.info.Key, ErrUnavailable, rangeTime)
	}
	return n, err
}

func (r *ranges) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off >= r.info.Size {
		return 0, io.EOF
	}
	want := min(int64(len(p)), r.info.Size-off)
	if want == 0 {
		return 0, nil
	}
	body, info, err := r.store.Get(ctx, r.info.Key, off, want)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if info.Tag != r.info.Tag {
		return 0, fmt.Errorf("%s: %w", r.info.Key, ErrChanged)
	}
	n, err := io.ReadFull(body, p[:want])
	switch {
	case err == io.ErrUnexpectedEOF || err == io.EOF:
		return n, fmt.Errorf("%s: %w: %w", r.info.Key, ErrUnavailable, io.ErrUnexpectedEOF)
	case err == nil && want < int64(len(p)):
		err = io.EOF
	}
	return n, err
}
