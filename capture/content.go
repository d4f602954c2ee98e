package capture

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/reason"
)

// isContent reports whether an open file has the content that was mapped. On
// overlays and on btrfs stat tells another device, and maybe another inode, than
// the kernel's own: then size and times decide.
func isContent(f *os.File, v *bpf.Validity) bool {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	if (bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}) == v.Dev && st.Ino != v.Inode {
		return false
	}
	return uint64(st.Size) == v.Size && timeOf(st.Mtim) == v.Mtime && timeOf(st.Ctim) == v.Ctime
}

// isLayered reports whether a file is on an overlay.
func isLayered(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// isProgram reports whether a process that runs has executed this file, which nobody can
// have written to since.
func isProgram(pid uint32, f *os.File) bool {
	exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && os.SameFile(exe, info)
}

// stamp is what changes of an open file when its content does.
type stamp struct {
	size         int64
	mtime, ctime bpf.Time
	links        uint64
}

// after reports whether the file may have changed after a time. That the last of its names
// was removed is no change. File systems that have no room for more count in seconds, and
// some in two.
func (s stamp) after(t time.Time) bool {
	if s.mtime.Nsec == 0 && s.ctime.Nsec == 0 {
		t = t.Add(-2 * time.Second)
	}
	return wall(s.mtime).After(t) || wall(s.ctime).After(t) && s.links > 0
}

// stampOf returns the stamp of a file, and the zero one of what has none.
func stampOf(f *os.File) stamp {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return stamp{}
	}
	return stamp{st.Size, timeOf(st.Mtim), timeOf(st.Ctim), uint64(st.Nlink)}
}

// changed reports whether the content of a file that was kept open is another one than
// that whose identity was read. Names, links and permissions may have changed.
func (o *object) changed(f *os.File) bool { return isChanged(f, o.seen, o.id) }

// isChanged reports whether an open file has another content than when it had this stamp,
// and this identity was read of it.
func isChanged(f *os.File, seen stamp, id buildid.ID) bool {
	now := stampOf(f)
	if now == seen {
		return false
	}
	if now.size != seen.size || now.mtime != seen.mtime {
		return true
	}
	info, err := buildid.Read(f)
	return err != nil || info.ID != id
}

// review looks at the files that were kept open once more. One that was overwritten
// cannot tell symbols any more; and where its identity was taken for that of all that
// was ever mapped of it, nobody knows which frames were of which content.
func (s *objects) review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		f, ok := o.content.(*os.File)
		if !ok || !o.changed(f) {
			continue
		}
		f.Close()
		o.content = nil
		if !o.proven {
			o.id, o.why = buildid.ID{}, reason.FileChanged
		}
	}
}

func wall(t bpf.Time) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func timeOf(t syscall.Timespec) bpf.Time { return bpf.Time{Sec: t.Sec, Nsec: uint32(t.Nsec)} }

// tick is longer than the kernel's clock for the times of files stands still
// (CONFIG_HZ is 100 at least).
const tick = 20 * time.Millisecond

// waitForTick waits until a change of the file would be seen in its times: one in
// the same tick as the last change would not.
func waitForTick(v *bpf.Validity) {
	age := time.Since(wall(v.Ctime))
	if age >= 0 && age < tick {
		time.Sleep(tick - age)
	}
}
