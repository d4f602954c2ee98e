package procfs

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"hallmark/internal/patience"
)

// The kernel answers exe, root, cwd, stat and many other files of a process in /proc under a lock of the
// process (exec_update_lock: fs/proc/base.c, fs/proc/array.c), which it has while it executes a program.
// A process whose mappings wait for a file system can stay there for ever. So nobody waits for these
// reads without a bound. The files status, comm, cgroup and task take no such lock.

// Read reads a small file that /proc has of a process or a thread. The error is patience.ErrSilent where
// it cannot be had in time.
func Read(pid int, name string) ([]byte, error) {
	return patience.InTime(pid, patience.LookTime, func() ([]byte, error) { return read(pathOf(pid, name)) })
}

// Readlink reads a link that /proc has of a process or a thread. Errors are those of Read.
func Readlink(pid int, name string) (string, error) {
	return patience.InTime(pid, patience.LookTime, func() (string, error) { return os.Readlink(pathOf(pid, name)) })
}

// OpenLink opens what such a link leads to, with O_PATH, for the caller to close. Errors are those
// of Read.
func OpenLink(pid int, name string, flags int) (fd int, err error) {
	open := func() (int, error) {
		fd, err := unix.Open(pathOf(pid, name), unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: pathOf(pid, name), Err: err}
		}
		return fd, nil
	}
	fd, err = patience.InTimeOr(pid, patience.LookTime, open, func(fd int) { unix.Close(fd) })
	if err != nil {
		return -1, err
	}
	return fd, nil
}

func pathOf(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }
