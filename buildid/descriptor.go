package buildid

import (
	"io"
	"strings"
	"syscall"
	"unsafe"
)

// A descriptor is an open file, without the poller and the finalizer of os.File.
type descriptor int

// ReadAt is as io.ReaderAt wants it.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		got, err := syscall.Pread(int(*d), p[n:], off+int64(n))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return n, err
		case got == 0:
			return n, io.EOF
		default:
			n += got
		}
	}
	return n, nil
}

// pathMax is the longest name that the kernel takes, with the NUL at its end
// (Linux include/uapi/linux/limits.h).
const pathMax = 4096

// openFile opens a file for reading. It does not wait for the other end of a FIFO
// or for a modem, as os.Open may. path is scratch space: syscall.Open would allocate
// a copy of every name, which shows where many small files are read.
func openFile(name string, flags int, path *[pathMax]byte) (int, error) {
	if len(name) >= len(path) {
		return -1, syscall.ENAMETOOLONG
	}
	if strings.IndexByte(name, 0) >= 0 {
		return -1, syscall.EINVAL
	}
	path[copy(path[:], name)] = 0
	flags |= syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_LARGEFILE
	for {
		fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(path)), uintptr(flags), 0, 0, 0)
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
