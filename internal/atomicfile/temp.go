package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A temp is a file that is being written: without a name where the file system can do that,
// and else with one of its own. Its process has a lock of it (flock) as long as it lives.
type temp struct {
	f     *os.File
	dir   *os.File
	base  string // of the file that it will be
	shown string // what errors call it; its own name where empty
	name  string // of its own; "" for none
}

// noUnnamed is set by tests: as where no file is without a name.
var noUnnamed bool

// newTemp makes a file in a directory. Errors of what is written to it call it shown.
func newTemp(dir *os.File, base, shown string, perm fs.FileMode) (*temp, error) {
	t := &temp{dir: dir, base: base, shown: shown}
	if fd, err := openUnnamed(dir, perm); err == nil {
		t.f = os.NewFile(uintptr(fd), shown)
		_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // for when it gets a name: nobody else has it
		return t, nil
	}
	err := t.create(perm)
	return t, err
}

// openUnnamed opens a file without a name that can get one.
func openUnnamed(dir *os.File, perm fs.FileMode) (int, error) {
	if noUnnamed {
		return -1, unix.EOPNOTSUPP
	}
	fd, err := openat(dir, ".", unix.O_RDWR|unix.O_TMPFILE, uint32(perm.Perm()))
	if err != nil {
		return -1, err
	}
	if err := unix.Access(descriptorPath(fd), unix.F_OK); err != nil { // no /proc: it would never get one
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// create makes a file with a name of its own. Between its making and its lock somebody
// may take it for a leftover: then it is made again.
func (t *temp) create(perm fs.FileMode) error {
	for {
		name := tempName(t.base)
		fd, err := openat(t.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(perm.Perm()))
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || !isNamed(t.dir, name, fd) {
			unix.Close(fd)
			continue
		}
		// A file system without locks: nobody takes it for a leftover there.
		t.f, t.name = os.NewFile(uintptr(fd), cmp.Or(t.shown, filepath.Join(t.dir.Name(), name))), name
		return nil
	}
}

// mark is in the names of temporary files, and in no other.
const mark = ".hallmark-"

// maxBase is how much of a name is in that of its temporary file: NAME_MAX is 255.
const maxBase = 200

// prefixOf returns what the names of the temporary files of a name begin with.
func prefixOf(base string) string { return "." + base[:min(len(base), maxBase)] + mark }

func tempName(base string) string { return fmt.Sprintf("%s%016x", prefixOf(base), rand.Uint64()) }

// isNamed reports whether a name is that of an open file.
func isNamed(dir *os.File, name string, fd int) bool {
	var named, open unix.Stat_t
	return unix.Fstat(fd, &open) == nil &&
		unix.Fstatat(int(dir.Fd()), name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		named.Ino == open.Ino && named.Dev == open.Dev
}

// publish gives the file its name, in place of what has it.
func (t *temp) publish(name string) error {
	if t.name == "" {
		err := t.link(name)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			err = t.copy()
		} else {
			err = t.linkTemp()
		}
		if err != nil {
			return err
		}
	}
	dir := int(t.dir.Fd())
	err := unix.Renameat(dir, t.name, dir, name)
	if err == nil {
		t.name = ""
	}
	return err
}

// link gives the file a name that nothing has.
func (t *temp) link(name string) error {
	path := descriptorPath(int(t.f.Fd()))
	return unix.Linkat(unix.AT_FDCWD, path, int(t.dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
}

// linkTemp gives the file a name of its own.
func (t *temp) linkTemp() error {
	for {
		name := tempName(t.base)
		err := t.link(name)
		if err == nil {
			t.name = name
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// copy makes a file with a name of one that cannot get any, as where a security module
// forbids it.
func (t *temp) copy() error {
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	named := &temp{dir: t.dir, base: t.base}
	if err := named.create(0o600); err != nil {
		return err
	}
	if _, err = t.f.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(named.f, t.f)
	}
	if err == nil {
		err = errors.Join(named.f.Chmod(info.Mode().Perm()), named.f.Sync())
	}
	if err != nil {
		named.remove()
		named.f.Close()
		return err
	}
	t.f.Close()
	*t = *named
	return nil
}

// copyTo writes the content into a file that is there and cannot be replaced.
func (t *temp) copyTo(name string) error {
	fd, err := openat(t.dir, name, unix.O_WRONLY|unix.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	t.remove()
	_, err = t.f.Seek(0, io.SeekStart)
	return finish(os.NewFile(uintptr(fd), name), func(w io.WriteSeeker) error {
		if err == nil {
			_, err = io.Copy(w, t.f)
		}
		return err
	}, t.f.Sync)
}

// remove takes the file's own name away.
func (t *temp) remove() {
	if t.name != "" {
		_ = unix.Unlinkat(int(t.dir.Fd()), t.name, 0)
	}
}

// Scratch returns a file for what is needed for a while, which nobody else can open. It has no
// name, and is gone when it is closed.
func Scratch() (*os.File, error) { return ScratchIn(os.TempDir()) }

// ScratchIn is Scratch on the file system of a directory.
func ScratchIn(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	t, err := newTemp(d, "scratch", "scratch", 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: dir, Err: err}
	}
	t.remove()
	return t.f, nil
}

// CreateTemp makes a file with a name of its own in a directory, for the caller to rename to
// base, or to remove, before it is closed. Those of processes that are gone are removed.
func CreateTemp(dir, base string) (*os.File, error) {
	fd, err := openat(nil, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	removeLeftovers(d, base)
	t := &temp{dir: d, base: base}
	if err := t.create(0o600); err != nil {
		return nil, &fs.PathError{Op: "create", Path: filepath.Join(dir, base), Err: err}
	}
	return t.f, nil
}
