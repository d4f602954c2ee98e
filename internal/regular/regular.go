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
// To look first and to open later costs more than to open: twice as much and more, because before Linux 7.2 the
// only way from a place to an open file leads through /proc. There are shorter ways for what nobody else can
// exchange in between, and for nothing else: see [Scratch.OpenOwn] and [Scratch.OpenEntry]. From Linux 7.2 on
// the kernel itself opens regular files alone where it is asked to, and what is below the root directory's
// mount is opened so.
//
// On older kernels a shorter way for all names breaks the promise. A name that was looked at and is opened
// then (newfstatat, openat2 without links and mounts) may be a pipe by then: who owns its directory makes one,
// and who writes to it sees that it was opened, whatever the flags. He may also rename a device of the same mount, or
// link to it. No flag of these kernels opens regular files alone.
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
	"sync/atomic"
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
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	return openat2(root, path, uint64(flags)|OPath, inRoot|noMagicLinks)
}

// A Scratch is room for one name at a time: to open many files it takes no more memory.
type Scratch [pathMax]byte

// pathMax is the longest name that the kernel takes, with the NUL at its end
// (Linux include/uapi/linux/limits.h).
const pathMax = 4096

// Open opens the regular file with this name for reading, and returns its descriptor. Flags
// may be O_NOFOLLOW.
func (s *Scratch) Open(name string, flags int) (fd int, err error) {
	if fd, ok := s.openRegular(name, flags); ok {
		return fd, nil
	}
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

// OpenEntry is Open for the entry of a directory that is open, in whatever way. The caller knows that the
// mount of the directory shows the owners that files have, and holds no files that the kernel makes up: one of
// a disk or of memory, whose numbers of owners are not mapped to others. Then an entry is looked at
// and opened, without a place in between and without /proc: only this user and root can put anything else
// there, as owner and mode of the directory show at that moment. Access control lists that let others
// write show in the bits of the group. From Linux 7.2 on the kernel opens regular files alone, so nothing is
// looked at.
//
// Root of a container counts as root where the container has no users of its own: see docs/identity.md.
//
// A stranger who chose the name, or who owns a directory above, decides to which directory it leads. He does not
// decide about the entries there: so the directories above do not matter.
//
// OpenEntry returns false for all that it does not open: where others can change the directory, where a link leads
// elsewhere, where something else than a regular file has the name, where another file system is mounted on it, and for
// errors. All that is left to Open.
func (s *Scratch) OpenEntry(dir int, name string) (fd int, ok bool) {
	if !IsEntry(name) || len(name) >= len(s) {
		return -1, false
	}
	s[copy(s[:], name)] = 0
	if opensRegular() {
		return s.openOnly(dir, 0)
	}
	var d syscall.Stat_t
	if syscall.Fstat(dir, &d) != nil || !isOwn(&d) || !s.settle(dir, uint64(d.Dev)) {
		return -1, false
	}
	fd, err := s.call(dir, readFlags|syscall.O_NOFOLLOW)
	return fd, err == nil
}

// settle reports whether the name in s is that of a regular file in a directory, on its own file system. From a link
// to another name of the directory it goes on to that one.
func (s *Scratch) settle(dir int, dev uint64) bool {
	const maxLinks = 4 // libx.so, libx.so.1, libx.so.1.2
	for range maxLinks {
		var st syscall.Stat_t
		if s.stat(dir, &st) != nil || uint64(st.Dev) != dev {
			return false
		}
		switch st.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			return true
		case syscall.S_IFLNK:
			if !s.readLink(dir) {
				return false
			}
		default:
			return false
		}
	}
	return false
}

// OpensEntries reports whether OpenEntry opens files of a directory, as it is now.
func OpensEntries(dir int) bool {
	var d syscall.Stat_t
	return opensRegular() || syscall.Fstat(dir, &d) == nil && isOwn(&d)
}

// IsEntry reports whether a name can be that of a file in a directory.
func IsEntry(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// isOwn reports whether only this user and root can change a directory. Where the user's number is that of
// all users who are unknown in his user namespace, a directory of his may be anybody's.
func isOwn(d *syscall.Stat_t) bool {
	const (
		othersWrite = 0o022
		overflow    = 65534 // DEFAULT_OVERFLOWUID, include/linux/highuid.h
	)
	isOurs := d.Uid == 0 || d.Uid != overflow && int(d.Uid) == os.Geteuid()
	return isOurs && d.Mode&(syscall.S_IFMT|othersWrite) == syscall.S_IFDIR
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

// lacksEmptyPath says that the kernel does not open a place by O_EMPTYPATH, as Linux 7.2 does: others ignore
// the flag, and no file has an empty name.
var lacksEmptyPath atomic.Bool

func (s *Scratch) reopen(place int) (fd int, err error) {
	if _, err := look(place); err != nil {
		return -1, err
	}
	if emptyPath != 0 && !lacksEmptyPath.Load() {
		s[0] = 0
		if fd, err = s.call(place, readFlags|emptyPath); err != syscall.ENOENT && err != syscall.EINVAL {
			return fd, err
		}
		lacksEmptyPath.Store(true)
	}
	const descriptors = "/proc/self/fd/"
	n := copy(s[:], descriptors)
	s[len(strconv.AppendInt(s[:n], int64(place), 10))] = 0
	return s.call(atFDCWD, readFlags)
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
	return s.call(atFDCWD, flags)
}

// call opens the name in s, which counts from a directory. syscall.Open would allocate a copy of every
// name, which shows where many small files are read.
func (s *Scratch) call(dir, flags int) (int, error) {
	flags |= syscall.O_CLOEXEC | syscall.O_LARGEFILE
	for {
		fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(s)), uintptr(flags), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// stat looks at the name in s, which counts from a directory, and follows no link.
func (s *Scratch) stat(dir int, st *syscall.Stat_t) error {
	const noFollow = 0x100 // AT_SYMLINK_NOFOLLOW: include/uapi/linux/fcntl.h
	for {
		_, _, errno := syscall.Syscall6(sysFstatat, uintptr(dir), uintptr(unsafe.Pointer(s)), uintptr(unsafe.Pointer(st)), noFollow, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}

// readLink replaces the name in s, of a link in a directory, by where the link leads, if that is another name there.
func (s *Scratch) readLink(dir int) bool {
	var target [256]byte // NAME_MAX, and one more byte than any name has
	n, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(s)),
		uintptr(unsafe.Pointer(&target)), unsafe.Sizeof(target), 0, 0)
	if errno != 0 || n == uintptr(len(target)) || !IsEntry(string(target[:n])) {
		return false
	}
	s[copy(s[:], target[:n])] = 0
	return true
}

// atFDCWD says that a relative name counts from the working directory (Linux
// include/uapi/linux/fcntl.h).
const atFDCWD = -100
