// Package regular opens regular files by names that somebody else chose: names in recordings,
// in debug information, in lines of text, and paths of other processes.
//
// To open a device may have an effect, such as starting a watchdog or making a terminal, and
// to open a pipe may wait for ever. So the door looks first, through a descriptor of the place
// in the file system alone (O_PATH), and opens only a regular file, through that descriptor:
// nothing that is put in its place meanwhile. It never waits: a lease on the file, by which
// its owner can make others wait, is an error.
//
// Nor does it open what the kernel makes up, in /proc for instance. Those files count as regular
// ones and may be mounted anywhere, by anybody in a mount namespace of his own. The product's own
// paths into such file systems are constants, and are opened without this package.
//
// The package imports nothing but the standard library.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// ErrOther says that what has a name is no regular file. It arrives wrapped in a *fs.PathError.
var ErrOther = errors.New("is no regular file")

// errDirectory is ErrOther for a directory, and EISDIR as well.
var errDirectory error = directoryError{}

type directoryError struct{}

func (directoryError) Error() string        { return syscall.EISDIR.Error() }
func (directoryError) Is(target error) bool { return target == ErrOther || target == syscall.EISDIR }

// Open opens the regular file with this name for reading. Links are followed. Errors are a
// *fs.PathError.
func Open(name string) (*os.File, error) {
	var s Scratch
	fd, err := s.Open(name, 0)
	return file(fd, err, name)
}

// OpenIn opens a regular file as a process sees it whose root directory is open: no link and
// no ".." leads out of there. Errors are a *fs.PathError.
func OpenIn(root int, name string) (*os.File, error) {
	place, err := PathIn(root, name, 0)
	if err != nil {
		return file(-1, err, name)
	}
	defer syscall.Close(place)
	return Reopen(place, name)
}

// Reopen opens the regular file whose place is open (O_PATH). The name is for messages. Errors
// are a *fs.PathError.
func Reopen(place int, name string) (*os.File, error) {
	var s Scratch
	fd, err := s.reopen(place)
	return file(fd, err, name)
}

// errLeased is why a file cannot be opened without waiting for a program: fcntl(2), F_SETLEASE.
var errLeased = fmt.Errorf("another program has a lease on it: %w", syscall.EAGAIN)

func file(fd int, err error, name string) (*os.File, error) {
	if err == syscall.EAGAIN {
		err = errLeased
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return unpolled(fd, name)
}

// unpolled returns a file for which no read waits in Go's poller until it can be read: that there
// is nothing to be read now is an error, EAGAIN. A server of FUSE, for one, may answer so.
func unpolled(fd int, name string) (*os.File, error) {
	// NewFile gives those to the poller that do not block when it is called.
	if err := syscall.SetNonblock(fd, false); err != nil {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	if err := syscall.SetNonblock(fd, true); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

// ReadFile reads a regular file that has at most so many bytes.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	return b, err
}

// OPath is O_PATH, which the package syscall does not have: it opens a place in the file
// system and nothing behind it (include/uapi/asm-generic/fcntl.h).
const OPath = 0x200000

// PathIn opens the place (O_PATH) of a name as a process sees it whose root directory is open:
// no link and no ".." leads out of there, and none of the links of /proc leads anywhere. Flags
// may be O_DIRECTORY and O_NOFOLLOW. It needs Linux 5.6.
func PathIn(root int, name string, flags int) (place int, err error) {
	const (
		sysOpenat2 = 437  // the same on every architecture
		resolve    = 0x12 // RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS: include/uapi/linux/openat2.h
	)
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	how := struct{ flags, mode, resolve uint64 }{uint64(flags) | OPath | syscall.O_CLOEXEC, 0, resolve}
	for {
		fd, _, errno := syscall.Syscall6(sysOpenat2, uintptr(root), uintptr(unsafe.Pointer(path)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// A Scratch is room for one name at a time: to open many files it takes no more memory.
type Scratch [pathMax]byte

// pathMax is the longest name that the kernel takes, with the NUL at its end
// (Linux include/uapi/linux/limits.h).
const pathMax = 4096

// Open opens the regular file with this name for reading, and returns its descriptor. Flags
// may be O_NOFOLLOW.
func (s *Scratch) Open(name string, flags int) (fd int, err error) {
	place, err := s.openat(name, OPath|flags)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(place)
	fd, err = s.reopen(place)
	if err != syscall.ENOENT {
		return fd, err
	}
	// There is no /proc. The file that has the name is opened, and used if it is the same.
	return s.openSame(place, name, flags)
}

// OpenOwn is Open for what a directory that only this user and root can change lists as a
// regular file: nobody can have put anything else in its place. It costs half as much.
func (s *Scratch) OpenOwn(name string, flags int) (fd int, err error) {
	if fd, err = s.openat(name, readFlags|flags); err != nil {
		return -1, err
	}
	if _, err := look(fd); err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// look is the error of a place that has no regular file, or one that the kernel makes up.
func look(place int) (st syscall.Stat_t, err error) {
	if err := syscall.Fstat(place, &st); err != nil {
		return st, err
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return st, made(place, uint64(st.Dev))
	case syscall.S_IFDIR:
		return st, errDirectory
	default:
		return st, ErrOther
	}
}

// readFlags open a regular file, and neither wait for the holder of a lease, nor for anybody
// should it be something else after all.
const readFlags = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

func (s *Scratch) reopen(place int) (fd int, err error) {
	if _, err := look(place); err != nil {
		return -1, err
	}
	const descriptors = "/proc/self/fd/"
	n := copy(s[:], descriptors)
	s[len(strconv.AppendInt(s[:n], int64(place), 10))] = 0
	return s.call(readFlags)
}

func (s *Scratch) openSame(place int, name string, flags int) (fd int, err error) {
	want, err := look(place)
	if err != nil {
		return -1, err
	}
	if fd, err = s.openat(name, readFlags|flags); err != nil {
		return -1, err
	}
	got, err := look(fd)
	if err != nil || got.Dev != want.Dev || got.Ino != want.Ino {
		syscall.Close(fd)
		return -1, syscall.ESTALE
	}
	return fd, nil
}

func (s *Scratch) openat(name string, flags int) (int, error) {
	if len(name) >= len(s) {
		return -1, syscall.ENAMETOOLONG
	}
	if strings.IndexByte(name, 0) >= 0 {
		return -1, syscall.EINVAL
	}
	s[copy(s[:], name)] = 0
	return s.call(flags)
}

// call opens the name in s. syscall.Open would allocate a copy of every name, which shows
// where many small files are read.
func (s *Scratch) call(flags int) (int, error) {
	flags |= syscall.O_CLOEXEC | syscall.O_LARGEFILE
	for {
		fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(s)), uintptr(flags), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// atFDCWD says that a relative name counts from the working directory (Linux
// include/uapi/linux/fcntl.h).
const atFDCWD = ^uintptr(99) // -100
