package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var errNotRegular = errors.New("is no regular file")

// openRegular opens a regular file. Errors are a *fs.PathError. The name may be one that a
// stranger chose, who wrote a recording for instance: nothing else is opened, because nobody
// may ever write to a pipe, and a device may do something for whoever opens it.
func openRegular(name string) (*os.File, error) {
	f, err := openIfRegular(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func openIfRegular(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0) // only the place in the file system
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNotRegular
	}
	opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(opened), name), nil
}
