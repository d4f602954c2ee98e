package unwind_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/unwind"
)

const liveMachine = unwind.ARM64

// registersOf asks ptrace for the registers of a stopped thread.
func registersOf(t testing.TB, tid int) unwind.State {
	t.Helper()
	const general = 1 // NT_PRSTATUS
	var r unix.PtraceRegs
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(&r)), Len: uint64(unsafe.Sizeof(r))}
	attached(t, tid, func() {
		if _, _, err := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(tid), general, uintptr(unsafe.Pointer(&v)), 0, 0); err != 0 {
			t.Fatal(err)
		}
	})
	s := unwind.State{IP: addr.Abs(r.Pc), Exact: true, Method: unwind.ByRegs}
	for n, v := range r.Regs {
		s.Set(unwind.Register(n), v)
	}
	s.Set(unwind.SP, r.Sp)
	return s
}
