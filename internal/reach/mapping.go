package reach

import (
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/procmap"
)

// VMAOf returns the mapping of a file that a BPF program saw.
func VMAOf(f *bpf.File) procmap.VMA {
	return procmap.VMA{Start: f.Start, End: f.End, Offset: f.Offset, Perm: procmap.Exec, Name: f.Path}
}

// MaxAttempts bounds how often a file is looked for that cannot be reached, or whose mappings
// are known to show the same: each process that maps it is another chance, and another cost.
const MaxAttempts = 8

// IsMemory reports whether v shows no file, or one that is only memory by
// another name: shared anonymous memory, huge pages, System V shared memory. What the kernel
// read a build ID from is a file in any case.
func IsMemory(v procmap.VMA) bool {
	if v.FileBacked() {
		return isMemoryFile(v.Dev, v.Inode, v.Name)
	}
	return v.Name == "" || v.Name[0] == '[' || strings.HasPrefix(v.Name, "//anon")
}

// IsMemoryByBPF is IsMemory for a file that a BPF program saw.
func IsMemoryByBPF(f *bpf.File) bool { return isMemoryFile(procmap.Dev(f.Dev), f.Inode, f.Path) }

// DevZero is the device whose private mappings are memory, and the name that the kernel gives to
// memory that is shared and anonymous.
const DevZero = "/dev/zero"

// Mappings reads the VMAs of a process.
func Mappings(pid int) ([]procmap.VMA, error) {
	return patience.InTime(pid, patience.LookTime, func() ([]procmap.VMA, error) {
		proc, err := procmap.Open(pid)
		if err != nil {
			return nil, err
		}
		defer proc.Close()
		return proc.All()
	})
}

// isMemoryFile reports whether a file is only memory by another name. Anybody can give that name
// to a file, in a mount namespace of his own, but none where the kernel keeps such memory.
func isMemoryFile(dev procmap.Dev, inode uint64, name string) bool {
	name = strings.TrimSuffix(name, procfs.Deleted)
	if name == DevZero && isDevZero(dev, inode) {
		return true
	}
	isNamedSo := name == DevZero || name == "/anon_hugepage" || strings.HasPrefix(name, "[anon_shmem:") || sysv.MatchString(name)
	return isNamedSo && mounts.IsInner(mounts.Dev(dev))
}

// isDevZero reports whether a file is the device itself, as this process sees it.
func isDevZero(dev procmap.Dev, inode uint64) bool {
	var st unix.Stat_t
	if unix.Lstat(DevZero, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 5) {
		return false
	}
	return IsInode(&st, procmap.VMA{Dev: dev, Inode: inode})
}

// sysv matches the names that ipc/shm.c gives to shared memory.
var sysv = regexp.MustCompile(`^/SYSV[0-9a-f]{8}$`)
