package mounts

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ErrForeign says that a path leads to or through a file system that may not answer.
var ErrForeign = errors.New("file system may not answer: a program or another machine serves it")

// ErrUncached is the error of a name in a directory of another user's, which the kernel does not have in its
// caches. It is an ErrForeign.
var ErrUncached = fmt.Errorf("%w, or a user lets nobody look into the directory", ErrForeign)

const (
	// O_PATH opens a place in the file system and nothing behind it
	// (include/uapi/asm-generic/fcntl.h).
	oPath = 0x200000
	// sysOpenat2 is the same on every architecture.
	sysOpenat2 = 437
	// From include/uapi/linux/openat2.h.
	resolveNoCrossing = 0x01
	resolveNoMagic    = 0x02
	resolveInRoot     = 0x10
	resolveCached     = 0x20
)

// Open is View.Open of the zero View.
func Open(root int, path string) (fd int, err error) { return new(View).Open(root, path) }

// Open opens the place that a path leads to (O_PATH), as a process sees it whose root is the
// directory root. It goes through no file system that may not answer: then the error is
// ErrForeign. Links of /proc are not followed.
//
// The kernel finds entries of its caches without a question to anybody (RESOLVE_CACHED,
// Linux 5.12). Else the path is gone step by step, each of which opens a name of a directory
// that was looked at before.
func (v *View) Open(root int, path string) (fd int, err error) {
	if trustAll.Load() {
		return openat2(root, path, 0, resolveInRoot|resolveNoMagic)
	}
	if !v.AnswersFD(root) {
		return -1, ErrForeign
	}
	fd, err = openat2(root, path, 0, resolveInRoot|resolveNoMagic|resolveCached)
	switch {
	case err == nil && v.AnswersFD(fd):
		return fd, nil
	case err == nil:
		syscall.Close(fd)
		return -1, ErrForeign
	case err == syscall.EAGAIN || err == syscall.EINVAL || err == syscall.ENOSYS || err == syscall.ELOOP:
		return (&walk{view: v, root: root}).to(path)
	}
	return -1, err
}

// OpenHere is Open for an absolute path that this process sees and that another one chose: see LeaveDirs.
func OpenHere(path string) (fd int, err error) { return (&View{leaves: true}).openHere(path) }

func openat2(root int, path string, flags, resolve uint64) (int, error) {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return -1, syscall.ENOENT
	}
	how := struct{ flags, mode, resolve uint64 }{oPath | syscall.O_CLOEXEC | flags, 0, resolve}
	for {
		fd, _, errno := syscall.Syscall6(sysOpenat2, uintptr(root), uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		runtime.KeepAlive(name)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// Bounds of a walk: MAXSYMLINKS of include/linux/namei.h, and more names than any path has.
const (
	maxLinks = 40
	maxSteps = 4096
)

// A walk goes along a path step by step.
type walk struct {
	view  *View
	root  int   // not the walk's to close
	dirs  []int // below root that it is in
	links int
	steps int
}

// to goes along a path from the root.
func (w *walk) to(path string) (int, error) {
	defer w.leave()
	rest := path
	for {
		name, more, ok := cutName(rest)
		if !ok {
			return reopen(w.here())
		}
		if w.steps++; w.steps > maxSteps {
			return -1, syscall.ELOOP
		}
		if name == ".." {
			w.up()
			rest = more
			continue
		}
		open := openName
		if w.view.leaves {
			open = OpenEntry
		}
		fd, err := open(w.here(), name)
		if err != nil {
			return -1, err
		}
		if !w.view.AnswersFD(fd) {
			syscall.Close(fd)
			return -1, ErrForeign
		}
		target, isLink, err := readLink(fd)
		if isLink && err == nil && isMagic(fd, target) {
			err = ErrForeign // nobody but the kernel knows where it leads
		}
		switch {
		case err != nil:
			syscall.Close(fd)
			return -1, err
		case isLink:
			syscall.Close(fd)
			if w.links++; w.links > maxLinks {
				return -1, syscall.ELOOP
			}
			if strings.HasPrefix(target, "/") {
				w.leave()
			}
			rest = target + "/" + more
		case strings.Trim(more, "/") == "":
			return fd, nil
		default:
			w.dirs = append(w.dirs, fd)
			rest = more
		}
	}
}

// cutName returns the first name of a path, without those that lead nowhere.
func cutName(path string) (name, rest string, ok bool) {
	for {
		path = strings.TrimLeft(path, "/")
		if path == "" {
			return "", "", false
		}
		name, rest, _ = strings.Cut(path, "/")
		if name != "." {
			return name, rest, true
		}
		path = rest
	}
}

func (w *walk) here() int {
	if n := len(w.dirs); n > 0 {
		return w.dirs[n-1]
	}
	return w.root
}

// up goes to the directory above, which is the root for the root.
func (w *walk) up() {
	if n := len(w.dirs); n > 0 {
		syscall.Close(w.dirs[n-1])
		w.dirs = w.dirs[:n-1]
	}
}

// leave goes back to the root.
func (w *walk) leave() {
	for len(w.dirs) > 0 {
		w.up()
	}
}

// isMagic reports whether an open link is one of those of /proc that lead to what a process has
// open, whose text says nothing. The others are few: /proc/self leads to a number, and
// /proc/mounts to self/mounts.
func isMagic(fd int, target string) bool {
	const procMagic = 0x9fa0 // PROC_SUPER_MAGIC of include/uapi/linux/magic.h
	var st syscall.Statfs_t
	if syscall.Fstatfs(fd, &st) != nil || st.Type != procMagic {
		return false
	}
	first, _, _ := strings.Cut(target, "/")
	_, err := strconv.Atoi(first)
	return err != nil && first != "self"
}

var leaveDirs atomic.Bool

// LeaveDirs has OpenEntry, OpenHere and the views of [Of] look into the directories of other users only
// as far as the kernel has their entries in its caches: there is a helper that looks into them.
//
// A lookup of another entry waits for the lock of the directory. Any process can hold it for as
// long as it likes: it has the kernel copy a list of entries into a page that a silent file
// system has yet to read. No signal ends that wait, and the process cannot end before.
// Directories of root's can be locked in the same way, but then no program finds anything there.
func LeaveDirs() { leaveDirs.Store(true) }

// OpenEntry opens the place of an entry of a directory (O_PATH), and follows no link. The directory has to
// be on a file system that answers. The error is ErrUncached where the entry is left alone: see LeaveDirs.
func OpenEntry(dir int, name string) (fd int, err error) {
	if leaveDirs.Load() && isOfOthers(dir) {
		for range cachedTries {
			fd, err = openat2(dir, name, syscall.O_NOFOLLOW, resolveCached)
			if err != syscall.EAGAIN {
				break
			}
		}
		switch err {
		case syscall.EINVAL, syscall.ENOSYS: // before Linux 5.12
		case syscall.EAGAIN:
			return -1, ErrUncached
		default:
			return fd, err
		}
	}
	return openName(dir, name)
}

// cachedTries is how often an entry is looked for in the caches, which others change meanwhile.
const cachedTries = 3

// isOfOthers reports whether a directory is neither root's nor this user's.
func isOfOthers(dir int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(dir, &st) != nil || st.Uid != 0 && int(st.Uid) != os.Geteuid()
}

// IsMountPoint reports whether something is mounted on an entry of a directory, which OpenEntry could open. The
// kernel has such an entry in its caches.
func IsMountPoint(dir int, name string) bool {
	if leaveDirs.Load() && isOfOthers(dir) {
		fd, err := OpenEntry(dir, name)
		if err != nil {
			return false
		}
		defer syscall.Close(fd)
		outer, _, _, _ := MountOf(dir)
		inner, _, _, _ := MountOf(fd)
		return outer != inner
	}
	fd, err := openat2(dir, name, syscall.O_NOFOLLOW, resolveNoCrossing)
	if err == nil {
		syscall.Close(fd)
	}
	return err == syscall.EXDEV
}

func openName(dir int, name string) (int, error) {
	for {
		fd, err := syscall.Openat(dir, name, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

func reopen(dir int) (int, error) { return openName(dir, ".") }

// readLink returns where a symbolic link leads that is open itself.
func readLink(fd int) (target string, isLink bool, err error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, 4096)
	var empty byte
	n, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if errno != 0 {
		return "", true, errno
	}
	return string(buf[:n]), true, nil
}
