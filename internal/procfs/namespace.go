package procfs

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// MountNamespace returns the inode number of the mount namespace of a process, 0 where it has ended or the
// kernel does not show it to this user. Pid 0 is this process.
func MountNamespace(pid int) uint64 {
	process := "self"
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	link, err := os.Readlink("/proc/" + process + "/ns/mnt")
	if err != nil {
		return 0
	}
	digits, isMount := strings.CutPrefix(strings.TrimSuffix(link, "]"), "mnt:[")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !isMount || err != nil {
		return 0
	}
	return n
}

// OwnMountNamespace is MountNamespace(0), which does not change.
var OwnMountNamespace = sync.OnceValue(func() uint64 { return MountNamespace(0) })

// BootID returns the number that the kernel has drawn when it started, as text; "" where it shows none.
var BootID = sync.OnceValue(func() string {
	b, err := read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
