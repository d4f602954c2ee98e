// Package perffile opens recordings by perf wherever they come from: a file, a directory, a pipe, and each
// of them compressed by gzip.
package perffile

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"hallmark/internal/atomicfile"
	"hallmark/perfdata"
	"hallmark/profile"
)

// Recording is a recording by perf that was opened: a file, a directory, or a stream.
type Recording struct {
	Name    string // for messages
	head    io.Reader
	more    []io.Reader // the other files of a directory
	names   []string    // of more
	Size    int64       // of head, where it can be read again; -1 of a stream that is read as it comes
	Written time.Time   // when it was written last, zero where that says nothing
	Close   func() error
}

// GzipMagic is how what gzip compressed begins.
var GzipMagic = []byte{0x1f, 0x8b}

// Open opens the recording in the file or directory called name. It returns nil for
// what is none, without an error where somebody else may know what it is.
func Open(name string, maxSize int64) (*Recording, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil // whoever reads profiles says so
	}
	if info.IsDir() {
		return openDirectory(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil
	}
	rec, err := recordingIn(name, f, info, maxSize)
	if rec == nil {
		f.Close()
	}
	return rec, err
}

func openDirectory(name string) (*Recording, error) {
	files, err := perfdata.OpenFiles(name)
	if err != nil {
		return nil, err
	}
	info, err := files[0].Stat()
	if err != nil {
		files.Close()
		return nil, err
	}
	rec := &Recording{Name: name, head: files[0], Size: info.Size(), Written: info.ModTime(), Close: files.Close}
	for _, f := range files[1:] {
		rec.more = append(rec.more, f)
		rec.names = append(rec.names, f.Name())
	}
	return rec, nil
}

// recordingIn returns the recording in a file, which may be compressed with gzip.
func recordingIn(name string, f *os.File, info os.FileInfo, maxSize int64) (*Recording, error) {
	if !info.Mode().IsRegular() {
		return nil, nil
	}
	var head [perfdata.MagicSize]byte
	n, _ := f.ReadAt(head[:], 0)
	if bytes.HasPrefix(head[:n], GzipMagic) {
		return inflated(name, bufio.NewReader(io.NewSectionReader(f, 0, info.Size())), info.ModTime(), maxSize, f.Close)
	}
	if !perfdata.HasMagic(head[:n]) {
		return nil, nil
	}
	return &Recording{Name: name, head: f, Size: info.Size(), Written: info.ModTime(), Close: f.Close}, nil
}

// recordingFrom returns the recording on standard input or in a pipe, nil where it has none:
// then nothing was read. When it was written says nothing.
func recordingFrom(name string, stdin *bufio.Reader, maxSize int64) (*Recording, error) {
	none := func() error { return nil }
	switch head, _ := stdin.Peek(perfdata.HeadSize); { // shorter input is no recording
	case bytes.HasPrefix(head, GzipMagic):
		return inflated(name, stdin, time.Time{}, maxSize, none)
	case perfdata.IsFile(head):
		return kept(name, stdin, time.Time{})
	case perfdata.HasMagic(head):
		return &Recording{Name: name, head: stdin, Size: -1, Close: none}, nil
	}
	return nil, nil
}

// inflated returns the recording in what gzip compressed, nil where it is something else: then
// nothing was read.
func inflated(name string, r *bufio.Reader, written time.Time, maxSize int64, done func() error) (*Recording, error) {
	if !HasCompressedMagic(r) {
		return nil, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rec, err := kept(name, Bound(z, cmp.Or(maxSize, profile.DefaultMaxSize)), written)
	if err != nil {
		return nil, err
	}
	return rec, done()
}

// HasCompressedMagic reports whether what is compressed begins as a recording does.
func HasCompressedMagic(r *bufio.Reader) bool {
	start, _ := r.Peek(r.Size())
	z, err := gzip.NewReader(bytes.NewReader(start))
	if err != nil {
		return false
	}
	var head [perfdata.MagicSize]byte
	_, err = io.ReadFull(z, head[:])
	return err == nil && perfdata.HasMagic(head[:])
}

// Bound returns a reader that fails where more is inflated than so many bytes.
func Bound(from io.Reader, most int64) io.Reader { return &bounded{from, most} }

// bounded fails where more is inflated than a bound.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w uncompressed: --max-size sets the bound", profile.ErrTooLarge)
	}
	return n, err
}

// kept returns the recording that comes through a pipe, in a file that has no name.
func kept(name string, from io.Reader, written time.Time) (*Recording, error) {
	f, err := Keep(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Recording{Name: name, head: f, Size: size, Written: written, Close: f.Close}, nil
}

// Reader returns what reads the records, from the start. again is for a second time beside the
// first one.
func (r *Recording) Reader(o perfdata.ReaderOptions, again bool) (*perfdata.Reader, error) {
	head, more := r.head, r.more
	if again {
		var ok bool
		if head, ok = anew(r.head, r.Size); !ok {
			return nil, errors.New("a stream is read once only")
		}
		more = nil
		for _, m := range r.more {
			part, _ := anew(m, 1<<62)
			more = append(more, part)
		}
	}
	o.More, o.Names = more, r.names
	return perfdata.NewReader(head, o)
}

// anew returns a reader of a file from its start, whatever was read of it. A file that cannot be read
// again is no file.
func anew(r io.Reader, size int64) (io.Reader, bool) {
	at, ok := r.(io.ReaderAt)
	if !ok || size < 0 {
		return nil, false
	}
	return io.NewSectionReader(at, 0, size), true
}

// Find opens a recording by perf, in the file or directory called name or on standard
// input for "-", where it may be a file, too; gzip is seen through. rec is nil where there is
// none. rest is what is to be read then, nil for the file called name, of which nothing was read.
func Find(stdin io.Reader, name string, maxSize int64) (rec *Recording, rest io.Reader, err error) {
	from := stdin
	if name != "-" {
		info, err := os.Stat(name)
		if err != nil || info.IsDir() || info.Mode().IsRegular() {
			rec, err = Open(name, maxSize)
			return rec, nil, err
		}
		f, err := os.Open(name) // a pipe that has a name
		if err != nil {
			return nil, nil, err
		}
		from = f
	}
	buffered := bufio.NewReaderSize(from, 1<<16)
	rec, err = recordingFrom(InputName(name), buffered, maxSize)
	return rec, buffered, err
}

// Keep copies what comes through a pipe to a file that has no name.
func Keep(from io.Reader) (*os.File, error) {
	kept, err := atomicfile.Scratch()
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy(kept, from); err == nil {
		_, err = kept.Seek(0, io.SeekStart)
	}
	if err != nil {
		kept.Close()
		return nil, err
	}
	return kept, nil
}

// InputName is what messages call an input.
func InputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}
