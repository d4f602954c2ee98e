package unwind

// x86Restorer is the code to which the kernel lets signal handlers return:
// "mov $15, %rax; syscall", rt_sigreturn. Debuggers and the C compiler's run-time library
// know it by these bytes, so that all C libraries and Go have the same.
const x86Restorer = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
