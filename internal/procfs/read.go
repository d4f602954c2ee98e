package procfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// read reads a file that the kernel makes up. os.ReadFile makes six system calls more, to find out whether one can wait
// for such a file with others.
func read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var all []byte
	var part [1024]byte // on the stack: most files are far smaller
	for {
		n, err := unix.Read(fd, part[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return all, nil
		default:
			all = append(all, part[:n]...)
		}
	}
}
