package aside

import (
	"io"
	"sync"
)

// A File is open in a helper.
type File struct {
	helper *helper
	number uint64
	about  string

	mu     sync.Mutex
	closed bool
	at     int64 // of block
	block  []byte
	end    bool // the file ends with block
}

const (
	// maxRead is how much one answer holds.
	maxRead = 1 << 20
	// blockSize is how much is read for who wants less.
	blockSize = 64 << 10
)

// Number is by what functions of the helper find what it has open: see [Kept].
func (f *File) Number() uint64 { return f.number }

// About is what was asked about when it was opened.
func (f *File) About() string { return f.about }

// Serves asks a function about the file, in the helper that has it open.
func Serves[Q, A any](f *File, function Function[Q, A], q Q) (a A, err error) {
	body, err := encode(&q)
	if err != nil {
		return a, err
	}
	r, err := f.ask(question{Name: function.name, Body: body})
	if err != nil {
		return a, err
	}
	return a, decode(r.Body, &a)
}

// ReadAt is as io.ReaderAt wants it.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		got, err := f.readSome(b[n:], off+int64(n))
		n += got
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readSome reads what one answer holds.
func (f *File) readSome(b []byte, off int64) (int, error) {
	if len(b) >= blockSize {
		a, err := f.read(off, min(len(b), maxRead))
		if err != nil {
			return 0, err
		}
		return copy(b, a.Bytes), a.err(copyLen(b, a.Bytes))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < f.at || off >= f.at+int64(len(f.block)) {
		start := off &^ (blockSize - 1)
		a, err := f.read(start, blockSize)
		if err != nil {
			return 0, err
		}
		f.at, f.block, f.end = start, a.Bytes, a.End
	}
	skip := int(off - f.at)
	if skip >= len(f.block) {
		return 0, io.EOF
	}
	n := copy(b, f.block[skip:])
	if n < len(b) && f.end {
		return n, io.EOF
	}
	return n, nil
}

func copyLen(b, from []byte) int { return min(len(b), len(from)) }

// err returns io.EOF where the file ends.
func (a *readAnswer) err(n int) error {
	if a.End || n == 0 {
		return io.EOF
	}
	return nil
}

func (f *File) read(off int64, size int) (a readAnswer, err error) {
	body, err := encode(&readQuestion{f.number, off, size})
	if err != nil {
		return a, err
	}
	r, err := f.ask(question{Name: readName, Body: body})
	if err != nil {
		return a, err
	}
	return a, decode(r.Body, &a)
}

func (f *File) ask(q question) (*reply, error) { return askOf(f.helper, f.about, q) }

// Close has the helper close the file.
func (f *File) Close() error {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	if !again {
		f.helper.forget(f.number)
	}
	return nil
}
