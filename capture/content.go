package capture

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
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

func timeOf(t syscall.Timespec) bpf.Time { return bpf.Time{Sec: t.Sec, Nsec: uint32(t.Nsec)} }

// tick is longer than the kernel's clock for the times of files stands still
// (CONFIG_HZ is 100 at least).
const tick = 20 * time.Millisecond

// waitForTick waits until a change of the file would be seen in its times: one in
// the same tick as the last change would not.
func waitForTick(v *bpf.Validity) {
	age := time.Since(time.Unix(v.Ctime.Sec, int64(v.Ctime.Nsec)))
	if age >= 0 && age < tick {
		time.Sleep(tick - age)
	}
}
