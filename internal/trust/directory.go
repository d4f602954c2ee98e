package trust

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PrivateDir reports whether only this user and root can put files into the directory, or
// exchange it or a link on the way to it. A directory that does not exist yet is judged by
// those that do: ask again when it was made, because in /tmp others may have been faster.
// Root in the home of a user must not follow that user's links, nor enter a FUSE file system,
// which may be a user's and shows the owners that it likes.
func PrivateDir(dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	var mounted mounts
	if geteuid() == 0 {
		var err error
		if mounted, err = readMounts(); err != nil {
			return false
		}
	}
	w := walk{judge: func(_ string, e entry) bool { return e.isPrivate() && !mounted.isServed(e) }}
	end, err := w.to(dir)
	if errors.Is(err, unix.ENOENT) {
		return true
	}
	if err != nil {
		return false
	}
	defer unix.Close(end.fd)
	return end.is(unix.S_IFDIR)
}

// maxLinks is how many links a walk follows, as the kernel: MAXSYMLINKS, include/linux/namei.h.
const maxLinks = 40

// A walk goes down a path, one directory or link at a time, and asks about each before it
// goes on.
type walk struct {
	// judge reports whether the walk may go through a directory or a link, whose path
	// without links is given.
	judge func(path string, e entry) bool
	// cross reports whether the walk may go to what is mounted at a path. A walk without
	// it may go everywhere.
	cross func(path string) bool
}

// An entry is what the walk found under a name.
type entry struct {
	fd int // O_PATH
	st unix.Statx_t
}

var errUntrusted = errors.New("others can change where the path leads")

// to returns what is at the end of an absolute path, which is not judged unless it is a
// directory, for the caller to close.
func (w *walk) to(path string) (entry, error) {
	at, err := open(unix.AT_FDCWD, "/", 0)
	if err != nil {
		return entry{}, err
	}
	here := "/" // the path of at, without links
	links := 0
	for rest := split(path); ; {
		if at.is(unix.S_IFDIR) && !w.judge(here, at) {
			return entry{}, at.close(errUntrusted)
		}
		if len(rest) == 0 {
			return at, nil
		}
		name := rest[0]
		rest = rest[1:]
		next, err := w.enter(at, here, name)
		if err != nil {
			return entry{}, at.close(err)
		}
		if !next.is(unix.S_IFLNK) {
			unix.Close(at.fd)
			at, here = next, filepath.Join(here, name)
			continue
		}
		target, err := w.follow(next, filepath.Join(here, name))
		unix.Close(next.fd)
		if links++; err == nil && links > maxLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return entry{}, at.close(err)
		}
		rest = append(split(target), rest...)
		if filepath.IsAbs(target) {
			unix.Close(at.fd)
			if at, err = open(unix.AT_FDCWD, "/", 0); err != nil {
				return entry{}, err
			}
			here = "/"
		}
	}
}

// split returns the names of a path. A name "." leads nowhere; ".." is one, because behind
// a link it leads elsewhere than in the text.
func split(path string) []string {
	var names []string
	for _, name := range strings.Split(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// enter opens a name in a directory, without waiting for the server of a file system that is
// mounted there.
func (w *walk) enter(at entry, here, name string) (entry, error) {
	if w.cross == nil {
		return open(at.fd, name, 0)
	}
	e, err := open(at.fd, name, unix.RESOLVE_NO_XDEV)
	if !errors.Is(err, unix.EXDEV) {
		return e, err
	}
	if !w.cross(filepath.Join(here, name)) {
		return entry{}, errUntrusted
	}
	return open(at.fd, name, 0)
}

// follow returns where a link leads. A user who may change the directory of a link may change the
// link; its owner could have made it only where others may write, such as /tmp.
func (w *walk) follow(link entry, path string) (string, error) {
	if !w.judge(path, link) {
		return "", errUntrusted
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link.fd, "", buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// open opens a name and nothing behind it: no device and no server notices.
func open(dir int, name string, resolve uint64) (e entry, err error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if resolve == 0 {
		e.fd, err = unix.Openat(dir, name, flags, 0)
	} else {
		e.fd, err = unix.Openat2(dir, name, &unix.OpenHow{Flags: flags, Resolve: resolve})
	}
	if err != nil {
		return entry{}, err
	}
	if e.st, err = statOf(e.fd); err != nil {
		return entry{}, e.close(err)
	}
	return e, nil
}

// statOf returns what the kernel knows of an open file without asking the server of its
// file system.
func statOf(fd int) (st unix.Statx_t, err error) {
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	return st, err
}

func (e entry) close(err error) error {
	unix.Close(e.fd)
	return err
}

func (e entry) is(kind uint16) bool { return e.st.Mode&unix.S_IFMT == kind }

// othersWrite reports whether others than the owner can write. A group of which this user is
// the only member is nobody else.
func (e entry) othersWrite() bool {
	if e.st.Mode&othersWrite == groupWrites && e.st.Uid != 0 && isSelf(e.st.Uid) && ownGroup(e.st.Gid) {
		return e.hasACL()
	}
	return e.st.Mode&othersWrite != 0
}

// hasACL reports whether an access control list may give others the rights that the mode
// shows as those of the group.
func (e entry) hasACL() bool {
	_, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(e.fd), "system.posix_acl_access", nil)
	return !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP)
}

// isShared reports whether others than the owner can make entries in a directory.
func (e entry) isShared() bool { return e.is(unix.S_IFDIR) && e.othersWrite() }

// isSticky reports whether those who share a directory can remove only what is their own.
func (e entry) isSticky() bool { return e.st.Mode&unix.S_ISVTX != 0 }

// isPrivate reports whether only this user and root can exchange what is in a directory and
// is theirs, or a link.
func (e entry) isPrivate() bool {
	return isOurs(e.st.Uid) && (!e.isShared() || e.isSticky())
}
