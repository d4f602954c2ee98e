package contentcache

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// DiskOf returns the sequence number of the contents of a disk, by that of the disk or of a
// partition: Documentation/ABI/stable/sysfs-block, "diskseq", Linux 5.15. It returns 0 where
// there is none.
func DiskOf(major, minor uint32) uint64 {
	if major == 0 { // of file systems without a disk of their own
		return 0
	}
	return theDisks.numberOf([2]uint32{major, minor})
}

// disks has the files open that have the sequence numbers: to open one takes ten times as long as to
// read it. Each read is answered anew. When a disk is removed its file answers no more, and another disk that gets
// its device number has another file: fs/kernfs/file.c.
type disks struct {
	mu   sync.Mutex
	open map[[2]uint32]int
}

var theDisks = disks{open: map[[2]uint32]int{}}

// maxDisks is how many files are kept open.
const maxDisks = 32

func (d *disks) numberOf(dev [2]uint32) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fd, ok := d.open[dev]; ok {
		if n, ok := sequence(fd); ok {
			return n
		}
		unix.Close(fd)
		delete(d.open, dev)
	}
	for _, form := range []string{"/sys/dev/block/%d:%d/diskseq", "/sys/dev/block/%d:%d/../diskseq"} {
		fd, err := unix.Open(fmt.Sprintf(form, dev[0], dev[1]), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		n, ok := sequence(fd)
		if ok && len(d.open) < maxDisks {
			d.open[dev] = fd
		} else {
			unix.Close(fd)
		}
		return n
	}
	return 0
}

// sequence reads a number.
func sequence(fd int) (uint64, bool) {
	var b [32]byte
	n, err := unix.Pread(fd, b[:], 0)
	if err != nil {
		return 0, false
	}
	number, err := strconv.ParseUint(string(bytes.TrimSpace(b[:n])), 10, 64)
	return number, err == nil
}
