package indexer

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidFiles keeps this process from opening files, and from reaching the network over TCP, by
// Landlock (Documentation/userspace-api/landlock.rst of the kernel). Where the kernel does not
// have it, or a container's filter of system calls hides it, nothing is forbidden.
func forbidFiles() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
	case unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM: // no such call, switched off at boot, filtered
		return nil
	default:
		return errno
	}
	// Each version of the kernel's interface has more rights that can be taken.
	rules := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1}
	if version >= 2 {
		rules.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		rules.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	size := unsafe.Sizeof(rules.Handled_access_fs)
	if version >= 4 {
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size += unsafe.Sizeof(rules.Handled_access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	if errno != 0 && !errors.Is(errno, syscall.ENOTSUP) {
		return errno
	}
	return nil
}
