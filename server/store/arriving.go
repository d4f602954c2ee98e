package store

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
)

// An Arriving is a file on its way into the store, which others can read meanwhile. Its last byte is there when all of it
// was verified: nobody takes a file for whole that the store refuses.
type Arriving struct {
	Facts             Facts // as far as its start says them
	Executable, Debug bool  // it is served as that, whatever else there is
	Size              int64 // that it is expected to have
	Origin            Origin
	Ready             func(*Arriving) // is called when the file can be opened

	mu    sync.Mutex
	file  *os.File                               // its writer closes it
	kept  func(context.Context) (*Object, error) // opens it in the store; nil while that does not have it
	n     int64                                  // bytes that are there
	news  chan struct{}                          // closed and replaced when more is known
	whole bool
	err   error
}

// errCutShort says that a file did not become what its start promised.
var errCutShort = errors.New("the file is another one than its start said")

// begin has others open the file from now on.
func (a *Arriving) begin(f *os.File) {
	a.change(func() { a.file = f })
	a.Ready(a)
}

// grew notes that so many bytes are there.
func (a *Arriving) grew(n int64) { a.change(func() { a.n = n }) }

// Verified notes that all of the file is there, and what it is. A file of another size, or that is good for something else
// than its start said, fails for those who read it.
func (a *Arriving) Verified(f Facts) {
	a.change(func() {
		a.whole = a.n == a.Size && f.ID == a.Facts.ID &&
			f.Executable == a.Facts.Executable && f.Debug == a.Facts.Debug
		if !a.whole && a.err == nil {
			a.err = errCutShort
		}
	})
}

// Kept notes that the store has the file. Its readers go on there: else one slow reader would keep all of the
// file on the disk, besides the object of the store.
func (a *Arriving) Kept(s *Store, added Added) {
	i := slices.IndexFunc(added.Manifest.Files, func(f File) bool { return f.Object == added.Object })
	if i < 0 {
		return
	}
	name := added.Manifest.Files[i].Stored()
	a.change(func() { a.kept = func(ctx context.Context) (*Object, error) { return s.Object(ctx, name) } })
}

// Close ends what was not verified with an error, nil for none.
func (a *Arriving) Close(err error) {
	a.change(func() {
		if !a.whole && a.err == nil {
			a.err = errors.Join(errCutShort, err)
		}
		a.file = nil
	})
}

func (a *Arriving) change(apply func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	apply()
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// Open returns a reader of the file, which fails where the file is no longer on its way. Reads wait for what is not there
// yet, until ctx is done. Without an error the caller closes the reader.
func (a *Arriving) Open(ctx context.Context) (*ArrivingReader, error) {
	a.mu.Lock()
	f, err := a.file, a.err
	a.mu.Unlock()
	if f == nil {
		return nil, errors.Join(errCutShort, err)
	}
	return &ArrivingReader{ctx: ctx, from: a, file: f}, nil
}

// An ArrivingReader reads an Arriving, for one goroutine.
type ArrivingReader struct {
	ctx    context.Context
	from   *Arriving
	file   *os.File
	object *Object // of the same content; nil while the file is read
}

// Close closes the reader.
func (r *ArrivingReader) Close() error {
	if r.object == nil {
		return nil
	}
	return r.object.Close()
}

// ReadAt implements io.ReaderAt.
func (r *ArrivingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.from.Size {
		return 0, io.EOF
	}
	there, err := r.from.await(r.ctx, off)
	if err != nil {
		return 0, err
	}
	want := min(int64(len(p)), there-off)
	n, err := r.read(p[:want], off)
	if err == nil && want < int64(len(p)) && off+want == r.from.Size {
		err = io.EOF
	}
	return n, err
}

// read reads bytes that are there, from the file until its writer closes it, and then from the store.
func (r *ArrivingReader) read(p []byte, off int64) (int, error) {
	if r.object != nil {
		return r.object.ReadAt(p, off)
	}
	n, err := r.file.ReadAt(p, off)
	if !errors.Is(err, os.ErrClosed) {
		return n, err
	}
	r.from.mu.Lock()
	open := r.from.kept
	r.from.mu.Unlock()
	if open == nil {
		return 0, errCutShort
	}
	if r.object, err = open(r.ctx); err != nil {
		r.object = nil
		return 0, err
	}
	return r.object.ReadAt(p, off)
}

// await returns how many bytes are there, when that are more than off.
func (a *Arriving) await(ctx context.Context, off int64) (int64, error) {
	for {
		a.mu.Lock()
		there := min(a.n, a.Size-1)
		if a.whole {
			there = a.Size
		}
		err := a.err
		if a.news == nil {
			a.news = make(chan struct{})
		}
		news := a.news
		a.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case off < there:
			return there, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-news:
		}
	}
}

// Stream returns a reader of the content from its start. Its reads can have less than was asked for.
func (r *ArrivingReader) Stream() io.ReadSeeker { return &arrivingStream{r: r} }

type arrivingStream struct {
	r   *ArrivingReader
	off int64
}

func (s *arrivingStream) Read(p []byte) (int, error) {
	n, err := s.r.ReadAt(p, s.off)
	s.off += int64(n)
	return n, err
}

func (s *arrivingStream) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.off
	case io.SeekEnd:
		offset += s.r.from.Size
	}
	if offset < 0 {
		return s.off, errors.New("negative offset")
	}
	s.off = offset
	return offset, nil
}

// growing writes a spool, and says how far it is.
type growing struct {
	*os.File
	to *Arriving
	n  int64
}

func (g *growing) Write(p []byte) (int, error) {
	n, err := g.File.Write(p)
	g.n += int64(n)
	g.to.grew(g.n)
	return n, err
}
