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
	s := getSearch()
	defer s.release()
	s.open(r, 0)
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
func ReadFile(name string) (Info, error) { return readFile(name, 0, true) }

// ReadDescriptor is ReadFile for a file that is open already and stays so; its
// file position is neither used nor changed. name only serves errors.
func ReadDescriptor(fd int, name string) (Info, error) {
	s := getSearch()
	defer s.release()
	return s.readDescriptor(fd, name, true)
}

// readFile computes the hash of what is not ELF only if that is wanted.
func readFile(name string, flags int, hashAny bool) (Info, error) {
	s := getSearch()
	defer s.release()
	fd, err := openFile(name, flags, &s.path)
	if err != nil {
		return Info{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	return s.readDescriptor(fd, name, hashAny)
}

func (s *search) readDescriptor(fd int, name string, hashAny bool) (Info, error) {
	s.file = descriptor(fd)
	s.open(&s.file, 0)
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
