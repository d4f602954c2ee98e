package unwind_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/unwind"
)

const liveMachine = unwind.X86_64

// registersOf asks ptrace for the registers of a stopped thread.
func registersOf(t testing.TB, tid int) unwind.State {
	t.Helper()
	var r unix.PtraceRegs
	attached(t, tid, func() {
		if err := unix.PtraceGetRegs(tid, &r); err != nil {
			t.Fatal(err)
		}
	})
	return stateOfRegs(&r)
}

func stateOfRegs(r *unix.PtraceRegs) unwind.State {
	s := unwind.State{IP: addr.Abs(r.Rip), Exact: true, Method: unwind.ByRegs}
	for n, v := range [16]uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15} {
		s.Set(unwind.Register(n), v)
	}
	return s
}
