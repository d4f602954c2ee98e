package buildid

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"hallmark/internal/regular"
)

// Read returns the identity of the file behind r. A file without notes has its [Content]
// for an identity. A file without code of its own, ELF or not, is hashed as a whole, so r has to
// report its size through a method Size() int64, as an io.SectionReader does, or Stat()
// (fs.FileInfo, error), as an os.File does; otherwise the Info has no ID, and that is no
// error. Nor is it one if the file is a debug file without notes, or too large to hash: Where
// says so.
//
// A malformed ELF file in which no GNU build ID was found is a *FormatError.
func Read(r io.ReaderAt) (Info, error) { return ReadContext(context.Background(), r) }

// ReadContext is Read. Hashing ends early, with its error, when ctx is done, and keeps to
// the budget of ctx, see [WithBudget].
func ReadContext(ctx context.Context, r io.ReaderAt) (Info, error) {
	s := getSearch()
	defer s.release()
	s.open(r, 0)
	info, err := s.inFile()
	if err != nil || !info.ID.IsZero() {
		return info, err
	}
	return s.addContent(ctx, info)
}

// ReadClaim is Read for the notes alone: without any, the Info has no ID. It never reads
// more than some pages of the file.
func ReadClaim(r io.ReaderAt) (Info, error) {
	s := getSearch()
	defer s.release()
	s.open(r, 0)
	return s.inFile()
}

// sizeOf returns the size that r reports, or -1.
func sizeOf(r io.ReaderAt) (int64, error) {
	switch r := r.(type) {
	case *descriptor:
		return r.size()
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

// ReadFile returns the identity of the file with this name, its content if it has
// no notes or is not ELF. A directory, a FIFO, a device and whatever else is not
// a file is an error, is not opened, and does not make the call wait: so the name may
// be one that a stranger chose. Errors are *fs.PathError,
// or *FormatError for a malformed ELF file in which no GNU build ID was found.
func ReadFile(name string) (Info, error) { return ReadFileContext(context.Background(), name) }

// ReadFileContext is ReadFile. Hashing ends early when ctx is done, see [ReadContext].
func ReadFileContext(ctx context.Context, name string) (Info, error) {
	return readFile(ctx, name, 0, true)
}

// ReadELFContext is ReadFileContext, except that what is not ELF is not hashed: it has no ID.
func ReadELFContext(ctx context.Context, name string) (Info, error) {
	return readFile(ctx, name, 0, false)
}

// ReadEntryContext is ReadFileContext for a file in a directory that is open: for each of many files of one
// directory it costs about half as much. The name leads to the file from where this process is, and its last
// element from the directory; should these be two files, either may be read. The directory is of a mount that
// shows the owners that files have, and of a file system of a disk or of memory. Where others than
// this user and root can change the directory, ReadEntryContext is ReadFileContext.
func ReadEntryContext(ctx context.Context, dir int, name string) (Info, error) {
	s := getSearch()
	defer s.release()
	var err error
	fd, ok := s.path.OpenEntry(dir, name[strings.LastIndexByte(name, '/')+1:])
	if !ok {
		fd, err = s.path.Open(name, 0)
	}
	return s.readOpened(ctx, fd, err, name, true)
}

// ReadDescriptor is ReadFile for a file that is open already and stays so; its
// file position is neither used nor changed. name only serves errors.
func ReadDescriptor(fd int, name string) (Info, error) {
	s := getSearch()
	defer s.release()
	return s.readDescriptor(context.Background(), fd, name, true)
}

// readFile hashes what is not ELF only if that is wanted.
func readFile(ctx context.Context, name string, flags int, hashAny bool) (Info, error) {
	s := getSearch()
	defer s.release()
	fd, err := s.path.Open(name, flags)
	return s.readOpened(ctx, fd, err, name, hashAny)
}

// readListed is readFile for a file of a scan.
func readListed(ctx context.Context, e *Entry) (Info, error) {
	s := getSearch()
	defer s.release()
	open := s.path.Open
	if e.isOwn {
		open = s.path.OpenOwn
	}
	fd, err := open(e.Path, syscall.O_NOFOLLOW)
	return s.readOpened(ctx, fd, err, e.Path, false)
}

func (s *search) readOpened(ctx context.Context, fd int, err error, name string, hashAny bool) (Info, error) {
	if errors.Is(err, regular.ErrOther) {
		return Info{}, named(err, name)
	}
	if err != nil {
		return Info{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	return s.readDescriptor(ctx, fd, name, hashAny)
}

func (s *search) readDescriptor(ctx context.Context, fd int, name string, hashAny bool) (Info, error) {
	s.file = descriptor(fd)
	s.open(&s.file, 0)
	info, err := s.inFile()
	if err == nil && info.ID.IsZero() && (info.ELF || hashAny) {
		info, err = s.addContent(ctx, info)
	}
	if err != nil {
		return Info{}, named(err, name)
	}
	return info, nil
}

// addContent gives a file that has no notes its content for an identity.
func (s *search) addContent(ctx context.Context, info Info) (Info, error) {
	size, err := sizeOf(s.r)
	if err != nil {
		return Info{}, err // a device, for instance
	}
	s.reads = 1 // the head is there
	c, err := s.readContent(ctx, false)
	info, err = info.AddContent(c, err)
	if err == nil && info.Where == Hashed && size >= 0 {
		info.Also, err = s.hash(size)
	}
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// AddContent gives the Info of a file without notes the result of [ReadContent].
func (i Info) AddContent(c Content, err error) (Info, error) {
	switch {
	case errors.Is(err, ErrTooLarge):
		i.Where = TooLarge
	case errors.Is(err, ErrBudget):
		i.Where = OverBudget
	case errors.Is(err, errNoSize):
	case err != nil:
		return Info{}, err
	case !c.IsZero():
		i.ID, i.Where = c.ID(), Hashed
	}
	return i, nil
}
