package contentcache

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/fstimes"
	"hallmark/internal/trust"
)

// key names a file, and a state of it. Files of equal keys have equal contents if both are
// named and the first one was quiet when it was read.
type key struct {
	// Inode numbers, sizes, times and even the UUID of a file system are equal in all
	// versions of an image that is built to be reproducible, and such images are mounted in
	// turn at one loop device. The kernel numbers mounts, and contents of a disk, without
	// using a number again until the next boot.
	dev       uint64
	disk      uint64 // diskseq; 0 for file systems without a disk of their own
	mount     uint64 // STATX_MNT_ID_UNIQUE, Linux 6.8; 0 if the kernel knows none
	subvolume uint64 // of btrfs, whose device numbers are used again
	inode     uint64
	// An inode number is used again as well.
	generation uint32
	born       moment
	size       uint64
	mtime      moment
	ctime      moment // no system call sets it
}

// moment is a time of a file.
type moment struct {
	sec  int64
	nsec uint32
}

// String returns seconds and nanoseconds.
func (m moment) String() string { return fmt.Sprintf("%d.%09d", m.sec, m.nsec) }

func momentOf(t unix.StatxTimestamp) moment { return moment{t.Sec, t.Nsec} }

// sight is how a file was seen.
type sight struct {
	key
	// isNamed says that the key names no other file, and that each change of the content
	// changes the times, as far as the file system is concerned.
	isNamed bool
}

// look reads the metadata of an open file.
func look(f *os.File) (sight, error) {
	const mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID_UNIQUE | unix.STATX_SUBVOL
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, mask, &st); err != nil {
		return sight{}, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	s := sight{key: key{
		dev: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino, size: st.Size,
		born: momentOf(st.Btime), mtime: momentOf(st.Mtime), ctime: momentOf(st.Ctime),
	}}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return s, nil
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return s, nil
	}
	if believed, _ := fstimes.Trusted(int64(fs.Type)); !believed || fs.Flags&unix.ST_NOSUID != 0 {
		return s, nil // nosuid may be a user's mount, who can write to the disk behind it
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		s.mount = st.Mnt_id
	}
	if st.Mask&unix.STATX_SUBVOL != 0 {
		s.subvolume = st.Subvol
	}
	s.disk = DiskOf(st.Dev_major, st.Dev_minor)
	s.generation = GenerationOf(f)
	isBtrfs := fs.Type == unix.BTRFS_SUPER_MAGIC
	s.isNamed = (s.mount != 0 || s.disk != 0) && (s.subvolume != 0 || !isBtrfs)
	return s, nil
}

// GenerationOf returns i_generation of an open file, which no later file of the same inode number
// has; 0 where the file system does not show it.
func GenerationOf(f *os.File) uint32 {
	n, err := AskGeneration(f)
	if err != nil {
		return 0
	}
	return n
}

// AskGeneration is GenerationOf for a caller who distinguishes a generation of 0 from none.
func AskGeneration(f *os.File) (uint32, error) {
	const getVersion = 0x80087601 // FS_IOC_GETVERSION of 64-bit machines, include/uapi/linux/fs.h
	return unix.IoctlGetUint32(int(f.Fd()), getVersion)
}

// isQuiet reports whether every change of the content that comes after this call changes the
// metadata. It must be called between a look at the metadata and the first read.
//
// Two changes within fstimes.Delay may have one time. File systems without room for more
// count in seconds, and some in two.
//
// And a store to a page that is mapped shared has a time only if the page was clean: the
// kernel maps it read-only, gets a fault by the first store, sets the times, and lets all
// other stores pass until the page is written back. Nobody has such a page if nobody has the
// file open for writing, because a mapping keeps the file open. Who opens it later begins
// with pages that are mapped read-only.
func (s sight) isQuiet(f *os.File, now time.Time) bool {
	if !s.isNamed {
		return false
	}
	step := fstimes.Delay()
	if s.mtime.nsec == 0 && s.ctime.nsec == 0 {
		step += 2 * time.Second
	}
	age := now.Sub(time.Unix(s.ctime.sec, int64(s.ctime.nsec)))
	return age > step && (nobodyWrites(f) || age > writtenBack() && trust.TrustedFile(f))
}

// nobodyWrites reports whether no process has the file open for writing. False may also mean
// that the kernel does not show this user.
//
// "A read lease can be placed only on a file descriptor that is opened read-only"; and by
// check_conflicting_open of fs/locks.c only if no inode_is_open_for_write. The owner of a file
// and CAP_LEASE may take one. It is given back at once: whoever opens the file for writing
// meanwhile waits for no longer than that.
func nobodyWrites(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

// writtenBack returns how old the last change of a file must be for all its pages to be
// written back and mapped read-only again, for files that nobody keeps from it on purpose.
//
// Documentation/admin-guide/sysctl/vm.rst, dirty_expire_centisecs: "Data which has been dirty
// in-memory for longer than this interval will be written out next time a flusher thread wakes
// up", which is every dirty_writeback_centisecs; "Setting this to zero disables periodic
// writeback altogether." Writing out takes time, so there is a margin.
func writtenBack() time.Duration {
	const most = time.Duration(1<<63 - 1)
	expire, interval := centiseconds("expire"), centiseconds("writeback")
	if expire <= 0 || interval <= 0 {
		return most
	}
	return max(2*time.Minute, 3*(expire+interval))
}

// centiseconds reads a setting of the kernel, 0 if it cannot.
func centiseconds(name string) time.Duration {
	b, err := os.ReadFile("/proc/sys/vm/dirty_" + name + "_centisecs")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * 10 * time.Millisecond
}
