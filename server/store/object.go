package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"hallmark/buildid"
	"hallmark/internal/seekable"
	"hallmark/server/blob"
)

const (
	errNoSpace = syscall.ENOSPC
	errQuota   = syscall.EDQUOT
)

// An Object is the content of a file, open for reading until it is closed.
type Object struct {
	*seekable.Reader
	Stored int64 // bytes that it takes in the store
	kept   *keptObject
	owner  *objects
	lost   func(error) error // makes the error of bytes that are damaged; nil for none
}

// ReadAt implements io.ReaderAt on the content.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Reader.ReadAt(p, off)
	return n, o.failed(err)
}

// Stream returns a reader of the content from its start.
func (o *Object) Stream() *ObjectStream { return &ObjectStream{o.Reader.Stream(), o} }

// An ObjectStream reads an Object from front to back.
type ObjectStream struct {
	*seekable.Stream
	o *Object
}

// Read implements io.Reader.
func (s *ObjectStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	return n, s.o.failed(err)
}

// Next returns the next bytes, up to n of them, which nobody may change.
func (s *ObjectStream) Next(n int64) ([]byte, error) {
	b, err := s.Stream.Next(n)
	return b, s.o.failed(err)
}

// failed returns an error of a read. An object that was damaged or replaced is opened anew the next time.
func (o *Object) failed(err error) error {
	if errors.Is(err, blob.ErrChanged) || isLost(err) {
		o.owner.forget(o.kept.key)
		if o.lost != nil && isLost(err) {
			return o.lost(err)
		}
	}
	return err
}

// objects are those that are open, and some that were open not long ago.
type objects struct {
	mu    sync.Mutex
	open  map[string]*keptObject
	clock uint64 // counts uses
}

type keptObject struct {
	key    string
	blob   blob.ReadAtCloser
	reader *seekable.Reader
	stored int64
	users  int
	used   uint64
	gone   bool // it is closed with its last user
}

// maxObjects is how many are open at most, while nobody reads more.
const maxObjects = 128

// Object opens the content of a file by the name of its object: File.Stored, SourceFile.Stored. Where the bytes are
// lost, the error is a *BrokenError, also that of a later read.
func (s *Store) Object(ctx context.Context, name string) (*Object, error) {
	s.init()
	if err := s.stillBroken(ctx, name); err != nil {
		return nil, err
	}
	o, err := s.openCompressed(ctx, objectKey(name))
	if isLost(err) {
		s.noteBroken(ctx, name, err)
		return nil, &BrokenError{name, err}
	}
	if o != nil {
		o.lost = func(err error) error {
			s.noteBroken(context.WithoutCancel(ctx), name, err)
			return &BrokenError{name, err}
		}
	}
	return o, err
}

func (s *Store) openCompressed(ctx context.Context, key string) (*Object, error) {
	if o := s.objects.get(key); o != nil {
		return o, nil
	}
	// Others may read it when this request is over.
	r, info, err := blob.Open(context.WithoutCancel(ctx), s.Blobs, key)
	if err != nil {
		return nil, err
	}
	// What was read of an object that was replaced must not answer for the new one.
	reader, err := seekable.NewReader(r, info.Size, fmt.Sprintf("%s (%s)", key, info.Tag), s.cache)
	if err != nil {
		r.Close()
		return nil, err
	}
	return s.objects.put(&keptObject{key: key, blob: r, reader: reader, stored: info.Size}), nil
}

func (o *objects) get(key string) *Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.open[key]
	if k == nil {
		return nil
	}
	return o.use(k)
}

// use is called under the lock.
func (o *objects) use(k *keptObject) *Object {
	k.users++
	o.clock++
	k.used = o.clock
	return &Object{Reader: k.reader, Stored: k.stored, kept: k, owner: o}
}

// forget has an object opened anew the next time. It is closed with its last user.
func (o *objects) forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.open[key]
	if k == nil {
		return
	}
	delete(o.open, key)
	if k.gone = true; k.users == 0 {
		k.blob.Close()
	}
}

func (o *objects) put(k *keptObject) *Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[string]*keptObject{}
	}
	if other := o.open[k.key]; other != nil {
		k.blob.Close()
		return o.use(other)
	}
	o.open[k.key] = k
	for len(o.open) > maxObjects {
		var oldest *keptObject
		for _, c := range o.open {
			if c.users == 0 && c != k && (oldest == nil || c.used < oldest.used) {
				oldest = c
			}
		}
		if oldest == nil {
			break
		}
		delete(o.open, oldest.key)
		oldest.blob.Close()
	}
	return o.use(k)
}

// Close gives the object back. It must be called once.
func (o *Object) Close() error {
	o.owner.mu.Lock()
	defer o.owner.mu.Unlock()
	if o.kept.users--; o.kept.gone && o.kept.users == 0 {
		return o.kept.blob.Close()
	}
	return nil
}

// Close closes all objects that nobody reads.
func (s *Store) Close() error {
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	for key, k := range s.objects.open {
		if k.users == 0 {
			delete(s.objects.open, key)
			k.blob.Close()
		}
	}
	return nil
}

var _ io.ReaderAt = (*Object)(nil)

// IndexKey returns where the store has an index of an identity, by the version of the format and
// a name.
func IndexKey(id buildid.ID, version, name string) string {
	return keyOf("index/"+version, id) + "/" + name
}

// OpenDerived opens what was made from files and stored by PutDerived.
func (s *Store) OpenDerived(ctx context.Context, key string) (*Object, error) {
	s.init()
	return s.openCompressed(ctx, key)
}

// DropDerived removes what PutDerived stored, where it is damaged, so that it is made again.
func (s *Store) DropDerived(ctx context.Context, key string) error {
	s.init()
	s.objects.forget(key)
	return s.Blobs.Delete(ctx, key)
}

// IsDamaged reports whether an error of what was opened says that the store has other bytes than were stored.
func IsDamaged(err error) bool { return errors.Is(err, seekable.ErrFormat) }

// PutDerived stores what was made from files. That it is there already is no error: it is the
// same.
func (s *Store) PutDerived(ctx context.Context, key string, f *os.File) error {
	s.init()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return s.putCompressed(ctx, key, io.NewSectionReader(f, 0, info.Size()))
}
