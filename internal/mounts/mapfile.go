package mounts

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// OpenMapFile opens, with O_PATH, the file that a process has mapped from start to end, which must be
// the range of a mapping. The process is a number, or "self". Linux wants CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN for it. It waits while the process holds the lock of its mappings: a process can do so for
// ever, by mmap(2) of a file of its own file system.
//
// That wait ends with a signal that kills. But whoever looks up the same name of the same directory waits for
// the first one who did, and no signal ends that (proc_map_files_lookup in fs/proc/base.c, d_wait_lookup in
// fs/dcache.c); the first one may be the process itself. So names are looked up in an instance of procfs that
// this process shares with nobody, where the kernel lets it have one.
func OpenMapFile(process string, start, end uint64) (fd int, err error) {
	dir, name := ownProc(), fmt.Sprintf("%s/map_files/%x-%x", process, start, end)
	if dir < 0 {
		name = "/proc/" + name
	}
	for {
		fd, err := syscall.Openat(dir, name, oPath|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// ownProc returns an instance of procfs that no other program has, which stays open, or -1.
var ownProc = sync.OnceValue(func() int {
	if !procIsOfOurs() {
		return -1
	}
	fd, err := mountProc()
	if err != nil {
		return -1
	}
	return fd
})

// System calls of include/uapi/asm-generic/unistd.h, which have these numbers on all machines, and what
// they are given, of include/uapi/linux/mount.h.
const (
	sysFSOpen, sysFSConfig, sysFSMount = 430, 431, 432

	fsOpenCloexec, fsMountCloexec, configCreate = 1, 1, 6

	attrNoSUID, attrNoDev, attrNoExec = 2, 4, 8
)

// mountProc mounts procfs nowhere. Since Linux 5.8 each mount is an instance of its own.
func mountProc() (fd int, err error) {
	kind := []byte("proc\x00")
	context, _, errno := syscall.Syscall(sysFSOpen, uintptr(unsafe.Pointer(&kind[0])), fsOpenCloexec, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("fsopen", errno)
	}
	defer syscall.Close(int(context))
	if _, _, errno := syscall.Syscall6(sysFSConfig, context, configCreate, 0, 0, 0, 0); errno != 0 {
		return -1, os.NewSyscallError("fsconfig", errno)
	}
	mount, _, errno := syscall.Syscall(sysFSMount, context, fsMountCloexec, attrNoSUID|attrNoDev|attrNoExec)
	if errno != 0 {
		return -1, os.NewSyscallError("fsmount", errno)
	}
	return int(mount), nil
}

// procIsOfOurs reports whether /proc is known to be of this process's PID namespace, of which its own instance
// is: a process has a number in each namespace from that of /proc on to its own (proc_pid_status(5)).
func procIsOfOurs() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, numbers, _ := strings.Cut(string(status), "\nNSpid:")
	numbers, _, _ = strings.Cut(numbers, "\n")
	return len(strings.Fields(numbers)) == 1
}
