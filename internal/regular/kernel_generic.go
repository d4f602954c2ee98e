//go:build arm64 || riscv64 || loong64

package regular

import "syscall"

const sysFstatat = syscall.SYS_FSTATAT

// emptyPath is O_EMPTYPATH: include/uapi/asm-generic/fcntl.h.
const emptyPath = 1 << 26

// errNotRegular is EFTYPE: include/uapi/asm-generic/errno.h.
const errNotRegular = syscall.Errno(134)
