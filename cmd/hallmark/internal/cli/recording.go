package cli

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

	"hallmark/perfdata"
	"hallmark/profile"
)

// recording is a recording by perf that was opened: a file, a directory, or a stream.
type recording struct {
	name    string // for messages
	head    io.Reader
	more    []io.Reader // the other files of a directory
	names   []string    // of more
	size    int64       // of head, where it can be read again; -1 of a stream that is read as it comes
	written time.Time   // when it was written last, zero where that says nothing
	close   func() error
}

// gzipMagic is how what gzip compressed begins.
var gzipMagic = []byte{0x1f, 0x8b}

// openRecording opens the recording in the file or directory called name. It returns nil for
// what is none, without an error where somebody else may know what it is.
func (in *input) openRecording(name string) (*recording, error) {
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
	rec, err := in.recordingIn(name, f, info)
	if rec == nil {
		f.Close()
	}
	return rec, err
}

func openDirectory(name string) (*recording, error) {
	files, err := perfdata.OpenFiles(name)
	if err != nil {
		return nil, err
	}
	info, err := files[0].Stat()
	if err != nil {
		files.Close()
		return nil, err
	}
	rec := &recording{name: name, head: files[0], size: info.Size(), written: info.ModTime(), close: files.Close}
	for _, f := range files[1:] {
		rec.more = append(rec.more, f)
		rec.names = append(rec.names, f.Name())
	}
	return rec, nil
}

// recordingIn returns the recording in a file, which may be compressed with gzip.
func (in *input) recordingIn(name string, f *os.File, info os.FileInfo) (*recording, error) {
	if !info.Mode().IsRegular() {
		return nil, nil
	}
	var head [perfdata.MagicSize]byte
	n, _ := f.ReadAt(head[:], 0)
	if bytes.HasPrefix(head[:n], gzipMagic) {
		return in.inflated(name, bufio.NewReader(io.NewSectionReader(f, 0, info.Size())), info.ModTime(), f.Close)
	}
	if !perfdata.HasMagic(head[:n]) {
		return nil, nil
	}
	return &recording{name: name, head: f, size: info.Size(), written: info.ModTime(), close: f.Close}, nil
}

// recordingFrom returns the recording on standard input or in a pipe, nil where it has none:
// then nothing was read. When it was written says nothing.
func (in *input) recordingFrom(name string, stdin *bufio.Reader) (*recording, error) {
	none := func() error { return nil }
	switch head, _ := stdin.Peek(perfdata.HeadSize); { // shorter input is no recording
	case bytes.HasPrefix(head, gzipMagic):
		return in.inflated(name, stdin, time.Time{}, none)
	case perfdata.IsFile(head):
		return in.kept(name, stdin, time.Time{})
	case perfdata.HasMagic(head):
		return &recording{name: name, head: stdin, size: -1, close: none}, nil
	}
	return nil, nil
}

// inflated returns the recording in what gzip compressed, nil where it is something else: then
// nothing was read.
func (in *input) inflated(name string, r *bufio.Reader, written time.Time, done func() error) (*recording, error) {
	if !hasCompressedMagic(r) {
		return nil, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	rec, err := in.kept(name, &bounded{z, cmp.Or(o.MaxSize, profile.DefaultMaxSize)}, written)
	if err != nil {
		return nil, err
	}
	return rec, done()
}

// hasCompressedMagic reports whether what is compressed begins as a recording does.
func hasCompressedMagic(r *bufio.Reader) bool {
	start, _ := r.Peek(r.Size())
	z, err := gzip.NewReader(bytes.NewReader(start))
	if err != nil {
		return false
	}
	var head [perfdata.MagicSize]byte
	_, err = io.ReadFull(z, head[:])
	return err == nil && perfdata.HasMagic(head[:])
}

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
func (in *input) kept(name string, from io.Reader, written time.Time) (*recording, error) {
	f, err := keep(from)
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
	return &recording{name: name, head: f, size: size, written: written, close: f.Close}, nil
}

// reader returns what reads the records, from the start. again is for a second time beside the
// first one.
func (r *recording) reader(o perfdata.ReaderOptions, again bool) (*perfdata.Reader, error) {
	head, more := r.head, r.more
	if again {
		var ok bool
		if head, ok = anew(r.head, r.size); !ok {
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

// anew returns a reader of a file from its start, whatever was read of it. What cannot be read
// again is no file.
func anew(r io.Reader, size int64) (io.Reader, bool) {
	at, ok := r.(io.ReaderAt)
	if !ok || size < 0 {
		return nil, false
	}
	return io.NewSectionReader(at, 0, size), true
}
