package buildid

import (
	"io"
	"syscall"
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

// size returns the size of a regular file.
func (d *descriptor) size() (int64, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(*d), &stat); err != nil {
		return -1, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return -1, errNotRegular
	}
	return stat.Size, nil
}
