//go:build !amd64 && !arm64 && !riscv64 && !loong64

package regular

import "syscall"

// sysFstatat is no system call: syscall.Stat_t of some of these architectures is not what the kernel writes.
const sysFstatat = 1 << 20

// emptyPath is O_EMPTYPATH, which has other values on some of these architectures and is not used.
const emptyPath = 0

// errNotRegular is EFTYPE, which has other values on some of these architectures and is not used.
const errNotRegular = syscall.Errno(0)
