package mounts

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"hallmark/internal/regular"
)

// OpenFile opens a regular file for reading by a name that somebody else chose and that this
// process sees. It goes through no file system that is not believed to answer, nor along the
// links of /proc that lead to files of processes: then the error wraps ErrForeign. What is put
// in the way meanwhile changes nothing. Errors are a *fs.PathError.
func (v *View) OpenFile(name string) (*os.File, error) {
	place, err := v.openHere(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(place)
	return regular.Reopen(place, name)
}

// OpenIn opens a regular file of a disk or of memory below a directory, by a name that somebody
// else chose: no link and no ".." leads out of there, and an absolute name counts from there. Nothing
// else is opened, nor asked for: nobody may ever write to a pipe, a device or a file of the kernel
// may do something for whoever opens it, and another user's server of files need not answer. Errors
// are those of OpenFile.
func (v *View) OpenIn(dir int, name string) (*os.File, error) {
	place, err := v.Open(dir, name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(place)
	return regular.Reopen(place, name)
}

// RealPath returns the path of a file without links. Errors are those of OpenFile.
func (v *View) RealPath(name string) (string, error) {
	place, err := v.openHere(name)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(place)
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(place))
}

// Stat returns what is known of a file without a question to a server. Errors are those of
// OpenFile.
func (v *View) Stat(name string) (st syscall.Stat_t, err error) {
	place, err := v.openHere(name)
	if err == nil {
		err = syscall.Fstat(place, &st)
		syscall.Close(place)
	}
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// openHere is Open for a path that this process sees.
func (v *View) openHere(name string) (fd int, err error) {
	if name, err = filepath.Abs(name); err != nil {
		return -1, err
	}
	root, err := syscall.Open("/", oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(root)
	return v.Open(root, name)
}
