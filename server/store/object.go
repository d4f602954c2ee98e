package store

import (
	"context"
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
}

// maxObjects is how many are open at most, while nobody reads more.
const maxObjects = 128

// Object opens the content of a file by the name of its object: File.Stored, SourceFile.Stored.
func (s *Store) Object(ctx context.Context, name string) (*Object, error) {
	s.init()
	return s.openCompressed(ctx, objectKey(name))
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
	reader, err := seekable.NewReader(r, info.Size, key, s.cache)
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
	return &Object{k.reader, k.stored, k, o}
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
	o.kept.users--
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
