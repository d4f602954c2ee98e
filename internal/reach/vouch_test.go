package reach

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/bpf"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

// TestVouchesForMapping has a file in memory that a process of this user has mapped, and then has not: a user's process
// that has executed a program of root's meanwhile looks like that. It vouches for what it has mapped alone.
func TestVouchesForMapping(t *testing.T) {
	fd, err := unix.MemfdCreate("vouched", unix.MFD_CLOEXEC)
	testenv.Need(t, err == nil, "memfd_create")
	f := os.NewFile(uintptr(fd), "vouched")
	defer f.Close()
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	generation, _ := generationOf(f, unix.TMPFS_MAGIC) // 0 where it has no handle
	start := addr.Abs(uintptr(unsafe.Pointer(&b[0])))
	q := Request{
		PID: uint32(os.Getpid()),
		VMA: procmap.VMA{Start: start, End: start + addr.Abs(len(b)), Perm: procmap.Read | procmap.Exec},
		Validity: &bpf.Validity{
			Dev: bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}, Inode: st.Ino, Size: uint64(st.Size),
			Generation: uint32(generation), Mtime: timeOf(st.Mtim), Ctime: timeOf(st.Ctim), Pinned: AnyMapping,
		},
	}
	if !q.vouches(f, true) || q.vouches(f, false) {
		t.Errorf("the file of a mapping: %v, of none: %v", q.vouches(f, true), q.vouches(f, false))
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	if q.vouches(f, true) {
		t.Error("a process vouches for a file that it has not mapped")
	}
}
