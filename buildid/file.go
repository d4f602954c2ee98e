package buildid

import (
	"io"
	"io/fs"
	"syscall"
)

// Read returns the identity of the file behind r. A file without notes gets the
// hash if r tells its size through a method Size() int64, as an io.SectionReader
// does, or Stat() (fs.FileInfo, error), as an os.File does; otherwise the Info
// has no ID, and that is no error. Content that is not ELF counts as a file
// without notes.
//
// A malformed ELF file in which no GNU build ID was found is a *FormatError.
func Read(r io.ReaderAt) (Info, error) {
	s := newSearch(r, 0)
	defer s.release()
	info, err := s.inFile()
	if err != nil || !info.ID.IsZero() {
		return info, err
	}
	size, err := sizeOf(r)
	if err != nil {
		return Info{}, err
	}
	if size < 0 {
		return info, nil
	}
	return s.addHash(info, size)
}

// sizeOf returns the size that r tells, or -1.
func sizeOf(r io.ReaderAt) (int64, error) {
	switch r := r.(type) {
	case interface{ Size() int64 }:
		return r.Size(), nil
	case interface{ Stat() (fs.FileInfo, error) }:
		info, err := r.Stat()
		if err != nil {
			return -1, err
		}
		if !info.Mode().IsRegular() {
			return -1, errNotRegular
		}
		return info.Size(), nil
	default:
		return -1, nil
	}
}

// ReadFile returns the identity of the file with this name, the hash if it has
// no notes or is not ELF. A directory, a FIFO, a device and whatever else is not
// a file is an error, and does not make the call wait. Errors are *fs.PathError,
// or *FormatError for a malformed ELF file in which no GNU build ID was found.
func ReadFile(name string) (Info, error) {
	fd, err := open(name, 0)
	if err != nil {
		return Info{}, err
	}
	defer syscall.Close(fd)
	return ReadDescriptor(fd, name)
}

// ReadDescriptor is ReadFile for a file that is open already and stays so; its
// file position is neither used nor changed. name only serves errors.
func ReadDescriptor(fd int, name string) (Info, error) { return readDescriptor(fd, name, true) }

// readDescriptor computes the hash of what is not ELF only if that is wanted.
func readDescriptor(fd int, name string, hashAny bool) (Info, error) {
	s := newFileSearch(fd)
	defer s.release()
	info, err := s.inFile()
	if err == nil && info.ID.IsZero() && (info.ELF || hashAny) {
		info, err = s.hashFile(info)
	}
	if err != nil {
		return Info{}, named(err, name)
	}
	return info, nil
}

func (s *search) hashFile(info Info) (Info, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(s.file), &stat); err != nil {
		return Info{}, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return Info{}, errNotRegular
	}
	return s.addHash(info, stat.Size)
}

func (s *search) addHash(info Info, size int64) (Info, error) {
	id, err := s.hash(size)
	if err != nil {
		return Info{}, err
	}
	info.ID, info.Where = id, Hashed
	return info, nil
}

// open does not wait for the other end of a FIFO or for a modem, as os.Open may.
func open(name string, flags int) (int, error) {
	for {
		fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
		if err == nil {
			return fd, nil
		}
		if err != syscall.EINTR {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// A descriptor is an open file, without the poller of os.File.
type descriptor int

// ReadAt is as io.ReaderAt wants it.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		got, err := syscall.Pread(int(*d), p[n:], off+int64(n))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return n, err
		case got == 0:
			return n, io.EOF
		default:
			n += got
		}
	}
	return n, nil
}
