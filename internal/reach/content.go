package reach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/cursor"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/internal/procfs"
	"hallmark/internal/trust"
)

// leavePages has reads of a file on FUSE go to its server, past the pages that others have mapped. The server may give each open file a content of its own: pages that are
// read for us would be mixed with those that a process executes.
func leavePages(f *os.File) {
	if FileSystemOf(f) != fstimes.FUSE {
		return
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT) // or else as others do
	}
}

// IsContent reports whether an open file has the content that was mapped. Where times prove
// nothing no file is proven to have it. On overlays stat reports another device, and maybe another
// inode, than the kernel's own, and on btrfs another device if nobody knows where the kernel has that
// of a subvolume. Then size and times decide, for files of those who would not deceive; see isOfLayer. On
// any other file system that is another file, whose times its server may have chosen.
func IsContent(f *os.File, v *bpf.Validity) bool {
	st, ok := isFileOf(f, v)
	return ok && timeOf(st.Ctim) == v.Ctime
}

// isRenamed reports whether an open file is the one that was mapped, with the size and time of
// change that it had then. Later changes may be of its names, its owner or its mode; or its
// content, if its owner put the time back.
func isRenamed(f *os.File, v *bpf.Validity) bool {
	st, ok := isFileOf(f, v)
	return ok && st.Ino == v.Inode && v.Generation != 0 && contentcache.GenerationOf(f) == v.Generation
}

// isFileOf reports whether an open file may be the one that was mapped, with that size and time of
// change, and returns what fstat does.
func isFileOf(f *os.File, v *bpf.Validity) (st syscall.Stat_t, ok bool) {
	if v.OfMapping() || syscall.Fstat(int(f.Fd()), &st) != nil {
		return st, false
	}
	isDev := (bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}) == v.Dev
	switch fs := FileSystemOf(f); {
	case !isDev && fs != fstimes.Btrfs && fs != fstimes.Overlay:
		return st, false
	case st.Ino != v.Inode && (isDev || fs == fstimes.Btrfs):
		return st, false
	case isDev && !isMedium(v, fstimes.IsImage(fs)):
		return st, false
	case !isDev && trust.LevelOf(f, "") == trust.Others && !isOfLayer(f, v):
		return st, false
	}
	return st, uint64(st.Size) == v.Size && timeOf(st.Mtim) == v.Mtime
}

// isOfLayer reports whether an open file on an overlay has its data in the inode that was mapped. Size and
// times of two files can be made the same: all times that are set within a tick of the clock are. The
// overlay gives a file the handle of the inode in its layer (AT_HANDLE_FID, Linux 6.6; struct ovl_fh of
// fs/overlayfs/overlayfs.h), which has a random generation on ext4 and xfs. A file that was copied up has
// the handle of the one before: that is never the inode that was mapped.
func isOfLayer(f *os.File, v *bpf.Validity) bool {
	const atHandleFID = unix.AT_REMOVEDIR // the same bit: include/uapi/linux/fcntl.h
	handle, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH|atHandleFID)
	if err != nil || v.Generation == 0 {
		return false
	}
	inode, generation, ok := inodeOfLayer(handle.Type(), handle.Bytes())
	return ok && inode == v.Inode && generation == v.Generation
}

// inodeOfLayer returns the inode and the generation in the handle of a file on an overlay.
func inodeOfLayer(kind int32, handle []byte) (inode uint64, generation uint32, ok bool) {
	const (
		ofOverlay = 0xf8 // OVL_FILEID_V1
		magic     = 0xfb // OVL_FH_MAGIC
		other     = 0x01 // OVL_FH_FLAG_BIG_ENDIAN
		all       = 0x02 // OVL_FH_FLAG_ANY_ENDIAN
		of32      = 0x01 // FILEID_INO32_GEN of include/linux/exportfs.h
		of64      = 0x81 // XFS_FILEID_TYPE_64FLAG with it, fs/xfs/xfs_export.h
	)
	c := cursor.New(handle, 0, false)
	c.Skip(3) // so that what follows the head is aligned
	version, mark, _, flags, of := c.U8(), c.U8(), c.U8(), c.U8(), c.U8()
	c.Skip(16) // the UUID of the layer's file system, or zeros
	if kind != ofOverlay || version != 0 || mark != magic || flags&(other|all) != 0 {
		return 0, 0, false
	}
	switch of {
	case of32:
		inode = uint64(c.U32())
	case of64:
		inode = c.U64()
	default:
		return 0, 0, false
	}
	generation = c.U32()
	return inode, generation, c.Err() == nil
}

// isMedium reports whether the disk that v is on is the one that has its device number now.
// The caller has a file of that file system open, so that it stays. Where it is not known,
// the number is enough, but for images: in others of the same name all may be the same but
// the content.
func isMedium(v *bpf.Validity, image bool) bool {
	disk := contentcache.DiskOf(v.Dev.Major, v.Dev.Minor)
	return disk == v.Medium || disk == 0 && !image
}

// FileSystemOf returns the magic number of the file system that a file is on, 0 if that is
// not known.
func FileSystemOf(f *os.File) int64 {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return 0
	}
	return int64(uint32(fs.Type))
}

// isLayered reports whether a file is on an overlay.
func isLayered(f *os.File) bool { return FileSystemOf(f) == fstimes.Overlay }

// KeepsTimes reports whether the times of an open file show each change of its content. On
// an overlay that is a matter of the layer, which passes on whether it can say where the file
// is on a disk: the file systems in memory and those of a server cannot.
func KeepsTimes(f *os.File) bool {
	fs := FileSystemOf(f)
	if fs == fstimes.Overlay {
		return reportsExtents(f)
	}
	trusted, _ := fstimes.Trusted(fs)
	return trusted
}

// Media are the numbers of what is in the disks of a machine: of each disk, no other content
// has the same.
type Media map[bpf.Dev]uint64

// CurrentMedia returns the numbers of what is in the disks now.
func CurrentMedia() Media {
	m := Media{}
	disks, _ := os.ReadDir("/sys/dev/block") // what is not there is not known
	for _, disk := range disks {
		var dev bpf.Dev
		if _, err := fmt.Sscanf(disk.Name(), "%d:%d", &dev.Major, &dev.Minor); err == nil {
			m[dev] = contentcache.DiskOf(dev.Major, dev.Minor)
		}
	}
	return m
}

// isFickle reports whether device, inode and times of an open file do not name its content.
// In another image on the same disk they may be the same; there was none if the disk has the
// number that it had when the recording began.
func (m Media) isFickle(f *os.File) bool {
	if !KeepsTimes(f) {
		return true
	}
	var st syscall.Stat_t
	if !fstimes.IsImage(FileSystemOf(f)) {
		return false
	}
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return true
	}
	dev := bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
	return m[dev] == 0 || m[dev] != contentcache.DiskOf(dev.Major, dev.Minor)
}

// reportsExtents reports whether a file system reports where on the disk a file is: FS_IOC_FIEMAP of
// include/uapi/linux/fs.h.
func reportsExtents(f *os.File) bool {
	const fiemap = 0xc020660b
	var request struct { // struct fiemap, which asks for the number of extents
		start, length               uint64
		flags, mapped, count, spare uint32
	}
	request.length = ^uint64(0)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&request)))
	return errno == 0
}

// isProgram reports whether a process that runs has executed this file, which nobody can
// have written to since.
func isProgram(pid uint32, f *os.File) bool {
	exe, err := procfs.OpenLink(int(pid), "exe", 0)
	if err != nil {
		return false
	}
	defer unix.Close(exe)
	if !mounts.Of(int(pid), false).AnswersFD(exe) {
		return false // another file: f is one that answers, or this process may wait
	}
	var a, b unix.Stat_t
	return unix.Fstat(exe, &a) == nil && unix.Fstat(int(f.Fd()), &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// Stamp is what changes of an open file when its content does.
type Stamp struct {
	Size         int64
	Mtime, Ctime bpf.Time
	links, Inode uint64
}

// After reports whether the file may have changed after a time. That the last of its names
// was removed is no change.
func (s Stamp) After(t time.Time) bool {
	t = t.Add(-s.rounding())
	return wall(s.Mtime).After(t) || wall(s.Ctime).After(t) && s.links > 0
}

// IsBefore reports whether the last change of a file, of its content or its names, was before a time for certain.
func (s Stamp) IsBefore(t time.Time) bool {
	return !s.After(t.Add(-fstimes.Delay())) && !wall(s.Ctime).Add(s.rounding()).After(t)
}

// IsTouched reports whether the inode has changed by the time of another stamp, and not because of a name that was
// added or removed.
func (s Stamp) IsTouched(now Stamp) bool { return s.Ctime != now.Ctime && s.links == now.links }

// rounding returns how much the times may have been rounded down by the file system: those
// that have no room for more count in seconds, and some in two.
func (s Stamp) rounding() time.Duration {
	if s.Mtime.Nsec == 0 && s.Ctime.Nsec == 0 {
		return 2 * time.Second
	}
	return 0
}

// StampOf returns the stamp of a file, and the zero one of what has none.
func StampOf(f *os.File) Stamp {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return Stamp{}
	}
	return stampOfStat(&st)
}

func stampOfStat(st *syscall.Stat_t) Stamp {
	return Stamp{st.Size, timeOf(st.Mtim), timeOf(st.Ctim), uint64(st.Nlink), st.Ino}
}

// Change is what has become of a file since its identity was read.
type Change uint8

const (
	Unchanged     Change = iota // its content is the one whose identity was read
	ChangeShown                 // its times or its size show it
	ChangeHidden                // they do not
	ChangeUnknown               // the file system does not answer any more
)

// IsChanged reports whether an open file has another content than when it had this stamp,
// and this identity was read of it.
func IsChanged(ctx context.Context, f *os.File, seen Stamp, id buildid.ID) bool {
	now := StampOf(f)
	if now == seen && KeepsTimes(f) {
		return false
	}
	if now.Size != seen.Size || now.Mtime != seen.Mtime {
		return true
	}
	info, err := contentcache.Read(ctx, f)
	return err != nil || info.ID != id
}

func wall(t bpf.Time) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func timeOf(t syscall.Timespec) bpf.Time { return bpf.Time{Sec: t.Sec, Nsec: uint32(t.Nsec)} }

// waitForClock waits until a change of the file would be seen in its times: one that comes so
// soon after the last one may have the same. It waits until the very clock that files have their
// times from is a step ahead, which comes before fstimes.Delay is over; a process may not live for
// longer.
func waitForClock(v *bpf.Validity) {
	const short = time.Millisecond
	for waited := time.Duration(0); waited < fstimes.Delay(); waited += short {
		var now, step unix.Timespec
		if errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now), unix.ClockGetres(unix.CLOCK_REALTIME_COARSE, &step)) != nil {
			time.Sleep(fstimes.Delay())
			return
		}
		age := time.Unix(now.Unix()).Sub(wall(v.Ctime))
		if age > time.Duration(step.Nano()) || age < -fstimes.Delay() {
			return
		}
		time.Sleep(short)
	}
}

// IsFile reports whether a file seems to be the one that had this stamp. The time of the inode
// is left out: it changes with its names.
func (s Stamp) IsFile(other Stamp) bool {
	return s.Inode == other.Inode && s.Size == other.Size && s.Mtime == other.Mtime
}

// StampBelow returns the stamp of the file that a process sees at a path. The error is
// mounts.ErrForeign where this process does not look.
func StampBelow(pid int, path string) (Stamp, error) {
	fd, err := OpenBelow(pid, path)
	if err != nil {
		return Stamp{}, err
	}
	defer unix.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return Stamp{}, err
	}
	return stampOfStat(&st), nil
}
