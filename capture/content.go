package capture

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
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/reason"
)

// leavePages has what is read of a file on FUSE come from its server, past the pages that
// others have mapped. The server may give each open file a content of its own: pages that are
// read for us would be mixed with those that a process executes.
func leavePages(f *os.File) {
	if fileSystemOf(f) != fstimes.FUSE {
		return
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT) // or else as others do
	}
}

// isContent reports whether an open file has the content that was mapped. Where times tell
// nothing no file is proven to have it. On overlays and on btrfs stat tells another device,
// and on overlays maybe another inode, than the kernel's own: then size and times decide. On
// any other file system that is another file, whose times its server may have chosen.
func isContent(f *os.File, v *bpf.Validity) bool {
	st, ok := isFileOf(f, v)
	return ok && timeOf(st.Ctim) == v.Ctime
}

// isRenamed reports whether an open file is the one that was mapped, with the size and time of
// change that it had then. What changed since may be its names, its owner or its mode; or its
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
	switch fs := fileSystemOf(f); {
	case !isDev && fs != fstimes.Btrfs && fs != fstimes.Overlay:
		return st, false
	case st.Ino != v.Inode && (isDev || fs == fstimes.Btrfs):
		return st, false
	case isDev && !isMedium(v, fstimes.IsImage(fs)):
		return st, false
	}
	return st, uint64(st.Size) == v.Size && timeOf(st.Mtim) == v.Mtime
}

// isMedium reports whether the disk that v is on is the one that has its device number now.
// Whoever asks has a file of that file system open, so that it stays. Where it is not known,
// the number is enough, but for images: in others of the same name all may be the same but
// the content.
func isMedium(v *bpf.Validity, image bool) bool {
	disk := contentcache.DiskOf(v.Dev.Major, v.Dev.Minor)
	return disk == v.Medium || disk == 0 && !image
}

// fileSystemOf returns the magic number of the file system that a file is on, 0 if that is
// not known.
func fileSystemOf(f *os.File) int64 {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return 0
	}
	return int64(uint32(fs.Type))
}

// isLayered reports whether a file is on an overlay.
func isLayered(f *os.File) bool { return fileSystemOf(f) == fstimes.Overlay }

// keepsTimes reports whether the times of an open file tell each change of its content. On
// an overlay that is a matter of the layer, which passes on whether it can say where the file
// is on a disk: the file systems in memory and those of a server cannot.
func keepsTimes(f *os.File) bool {
	fs := fileSystemOf(f)
	if fs == fstimes.Overlay {
		return tellsExtents(f)
	}
	trusted, _ := fstimes.Trusted(fs)
	return trusted
}

// media are the numbers of what is in the disks of a machine: of each disk, no other content
// has the same.
type media map[bpf.Dev]uint64

func mediaNow() media {
	m := media{}
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
func (m media) isFickle(f *os.File) bool {
	if !keepsTimes(f) {
		return true
	}
	var st syscall.Stat_t
	if !fstimes.IsImage(fileSystemOf(f)) {
		return false
	}
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return true
	}
	dev := bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
	return m[dev] == 0 || m[dev] != contentcache.DiskOf(dev.Major, dev.Minor)
}

// tellsExtents reports whether a file system tells where it has a file: FS_IOC_FIEMAP of
// include/uapi/linux/fs.h.
func tellsExtents(f *os.File) bool {
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
	exe, err := unix.Open(fmt.Sprintf("/proc/%d/exe", pid), unix.O_PATH|unix.O_CLOEXEC, 0)
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

// stamp is what changes of an open file when its content does.
type stamp struct {
	size         int64
	mtime, ctime bpf.Time
	links, inode uint64
}

// after reports whether the file may have changed after a time. That the last of its names
// was removed is no change.
func (s stamp) after(t time.Time) bool {
	t = t.Add(-s.rounding())
	return wall(s.mtime).After(t) || wall(s.ctime).After(t) && s.links > 0
}

// rounding returns how much the times may have been rounded down by the file system: those
// that have no room for more count in seconds, and some in two.
func (s stamp) rounding() time.Duration {
	if s.mtime.Nsec == 0 && s.ctime.Nsec == 0 {
		return 2 * time.Second
	}
	return 0
}

// stampOf returns the stamp of a file, and the zero one of what has none.
func stampOf(f *os.File) stamp {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return stamp{}
	}
	return stampOfStat(&st)
}

func stampOfStat(st *syscall.Stat_t) stamp {
	return stamp{st.Size, timeOf(st.Mtim), timeOf(st.Ctim), uint64(st.Nlink), st.Ino}
}

// change is what has become of a file since its identity was read.
type change uint8

const (
	unchanged     change = iota
	changeShown          // its times or its size show it
	changeHidden         // they do not
	changeUnknown        // the file system does not answer any more
)

// change reports whether the content of a file that was kept open is another one than that
// whose identity was read. Names, links and permissions may have changed.
func (o *object) change(ctx context.Context) change {
	switch f := o.content.(type) {
	case *os.File:
		switch {
		case !isChanged(ctx, f, o.seen, o.id):
			return unchanged
		case stampOf(f) != o.seen:
			return changeShown
		}
		return changeHidden
	case *aside.File:
		return changeFar(f, o.seen, o.id)
	}
	return unchanged
}

// isChanged reports whether an open file has another content than when it had this stamp,
// and this identity was read of it.
func isChanged(ctx context.Context, f *os.File, seen stamp, id buildid.ID) bool {
	now := stampOf(f)
	if now == seen && keepsTimes(f) {
		return false
	}
	if now.size != seen.size || now.mtime != seen.mtime {
		return true
	}
	info, err := contentcache.Read(ctx, f)
	return err != nil || info.ID != id
}

// review looks at the files that were kept open once more. One that was overwritten
// cannot tell symbols any more; and where its identity was taken for that of all that
// was ever mapped of it, nobody knows which frames were of which content. Where the times do
// not show it, the identity that the kernel read when it was mapped counts, as it does for
// changes that nobody can see.
func (s *objects) review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		if o.content == nil && o.isByNumber() && o.tried < o.asked { // a mapping was not looked at
			o.id, o.why = buildid.ID{}, reason.FileUnresponsive
		}
		c := o.change(s.ctx)
		if c == unchanged {
			continue
		}
		o.content.Close()
		o.content = nil
		if o.proven || c != changeShown && !o.want.IsZero() {
			continue
		}
		o.id, o.why = buildid.ID{}, reason.FileChanged
		if c == changeUnknown {
			o.why = reason.FileUnresponsive
		}
	}
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
