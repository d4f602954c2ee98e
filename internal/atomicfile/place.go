package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A place is where a file is published.
type place struct {
	dir  *os.File // O_PATH, for the caller of find to close
	base string   // what the file is called there
	name string   // as the user gave it, for errors
	old  *unix.Stat_t
	// isMagic says that the name is a link of /proc to what a process has open.
	isMagic bool
	// isForeign says that the file is another user's.
	isForeign bool
	fast      bool // do not wait for the disk
}

// maxLinks is how many links are followed, as by the kernel: MAXSYMLINKS, include/linux/namei.h.
const maxLinks = 40

// errForeign says that another user may have put something there for this one to meet.
var errForeign = errors.New("belongs to another user, who may have put it there: name the place that it leads to")

// find returns the place that a name leads to. The kernel would follow a link only while it
// opens, and makes, the file behind it. So the names of the path are followed here, in
// directories that are open: no link can be exchanged after it was judged.
func find(name string) (*place, error) {
	p := &place{name: name}
	at, path := (*os.File)(nil), name
	for range maxLinks {
		target, err := p.enter(at, path)
		if at != nil {
			at.Close()
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		if target == "" {
			return p, nil
		}
		at, path = p.dir, target
	}
	at.Close()
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ELOOP}
}

// isReplaceable reports whether what has the name is a regular file, and the name its own.
func (p *place) isReplaceable() bool { return !p.isMagic && p.old.Mode&unix.S_IFMT == unix.S_IFREG }

// enter opens the directory of a path, and looks at what has the last name in it. It returns
// where that leads, "" if it is no link.
func (p *place) enter(at *os.File, path string) (target string, err error) {
	dir, base := filepath.Split(path)
	if base == "" || base == "." || base == ".." {
		return "", unix.EISDIR
	}
	if p.dir, err = openDir(at, dir, asItIs); err != nil {
		return "", err
	}
	p.base, p.old = base, nil
	if target, err = p.look(); err != nil {
		p.dir.Close()
	}
	return target, err
}

// NewDir makes a directory that is not there, with the mode perm less the umask. Links on the way
// to it are followed as by Write.
func NewDir(name string, perm fs.FileMode) error {
	above, base := filepath.Split(filepath.Clean(name))
	dir, err := openDir(nil, above, asItIs)
	if err == nil {
		err = unix.Mkdirat(int(dir.Fd()), base, uint32(perm.Perm()))
		dir.Close()
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// MakeDir makes a directory, and those above it, where they are not there. They get the mode perm
// less the umask. Links are followed as by Write.
func MakeDir(name string, perm fs.FileMode) error {
	if name == "" {
		return &fs.PathError{Op: "mkdir", Path: name, Err: unix.ENOENT}
	}
	dir, err := openDir(nil, name, func(dir *os.File, name string) error {
		err := unix.Mkdirat(int(dir.Fd()), name, uint32(perm.Perm()))
		if errors.Is(err, unix.EEXIST) { // another was faster
			err = nil
		}
		return err
	})
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return dir.Close()
}

// asItIs makes no directory that is not there.
func asItIs(*os.File, string) error { return unix.ENOENT }

// openDir opens a directory, name by name: a link of another user's on the way may lead anywhere, as
// the last name of a path may. A name that nothing has is for missing to make.
func openDir(at *os.File, path string, missing func(dir *os.File, name string) error) (dir *os.File, err error) {
	start := "."
	if filepath.IsAbs(path) {
		at, start = nil, "/"
	}
	fd, err := openat(at, start, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	dir = os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	names := strings.Split(path, "/")
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == "" {
			continue
		}
		fd, err := openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			if err = missing(dir, name); err == nil {
				fd, err = openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
			}
		}
		if errors.Is(err, unix.ENOTDIR) { // or a link
			var target string
			if fd, target, err = follow(dir, name); target != "" {
				if links++; links > maxLinks {
					return nil, unix.ELOOP
				}
				names = append(strings.Split(target, "/"), names...)
				if filepath.IsAbs(target) {
					fd, err = openat(nil, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
				} else {
					continue
				}
			}
		}
		if err != nil {
			return nil, err
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), path)
	}
	return dir, nil
}

// follow returns where a link in a directory leads to, or the directory behind it if it is one of
// /proc to what a process has open. The error is ENOTDIR if the name is no link.
func follow(dir *os.File, name string) (fd int, target string, err error) {
	link, err := openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, "", err
	}
	defer unix.Close(link)
	var st unix.Stat_t
	if err := unix.Fstat(link, &st); err != nil {
		return -1, "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return -1, "", unix.ENOTDIR
	}
	if isForeign(&st) {
		return -1, "", errForeign
	}
	isMagic, err := isMagic(int(dir.Fd()), name)
	if err != nil {
		return -1, "", err
	}
	if isMagic {
		fd, err = openat(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		return fd, "", err
	}
	target, err = readlink(link, "")
	return -1, target, err
}

// isMagic reports whether a link in a directory is one of /proc to what a process has open.
func isMagic(dir int, name string) (bool, error) {
	var system unix.Statfs_t
	err := unix.Fstatfs(dir, &system)
	return err == nil && system.Type == unix.PROC_SUPER_MAGIC && name != "self" && name != "thread-self", err
}

// readlink returns where a link leads.
func readlink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err == nil && (n == 0 || n == len(buf)) {
		err = unix.ENAMETOOLONG
	}
	return string(buf[:max(n, 0)]), err
}

// look looks at what has the name.
func (p *place) look() (target string, err error) {
	var dir, st unix.Stat_t
	fd := int(p.dir.Fd())
	if err := unix.Fstat(fd, &dir); err != nil {
		return "", err
	}
	err = unix.Fstatat(fd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	p.old = &st
	p.isForeign = isForeign(&st)
	if err := judge(&dir, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	if p.isMagic, err = isMagic(fd, p.base); err != nil || p.isMagic {
		return "", err
	}
	return readlink(fd, p.base)
}

// judge refuses what another user can have laid out for this one: a link would have a file of this
// user overwritten, a pipe would get the content. The kernel has such rules for directories for all
// (fs.protected_symlinks, fs.protected_fifos). Root may work in a user's own directory as well. A
// regular file is replaced, unless the directory forbids it: better said now than when the
// content is there.
func judge(dir, st *unix.Stat_t) error {
	self := uint32(os.Geteuid())
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		if isForeign(st) {
			return errForeign
		}
	case dir.Mode&unix.S_ISVTX != 0 && self != 0 && st.Uid != self && dir.Uid != self:
		return unix.EPERM
	}
	return nil
}

// isForeign reports whether something is neither this user's nor root's.
func isForeign(st *unix.Stat_t) bool { return st.Uid != uint32(os.Geteuid()) && st.Uid != 0 }

// openat opens a name in a directory, nil for the working directory.
func openat(dir *os.File, name string, flags int, perm uint32) (int, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC, perm)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
