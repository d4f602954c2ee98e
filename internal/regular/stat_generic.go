//go:build arm64 || riscv64 || loong64

package regular

import "syscall"

const sysFstatat = syscall.SYS_FSTATAT
