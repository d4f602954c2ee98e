package regular

import "syscall"

const sysFstatat = syscall.SYS_NEWFSTATAT
