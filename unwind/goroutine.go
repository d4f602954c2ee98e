package unwind

import (
	"bytes"
	"encoding/binary"

	"hallmark/addr"
)

// runtime.morestack calls runtime.newstack on the stack of the thread's scheduler (g0), to
// which nothing leads back: it clears the frame pointer. The goroutine that ran out of stack
// is the thread's current one, and where it stands lies in its struct g, as Go's own
// tracebacks have it (runtime/traceback.go, unwindJumpStack). Where in struct g and struct m
// that is differs between releases; the runtime's own instructions show it.

// goroutineRule are the places that a rule of kind Goroutine has, in units of 8 bytes but curg.
type goroutineRule struct {
	gM     int8  // g.m
	sp, pc int8  // g.sched.sp, g.sched.pc
	bp     int8  // g.sched.bp
	curg   int32 // m.curg, bytes
}

// rule returns the rule for a machine whose code has g in this register.
func (g goroutineRule) rule(register Register) Rule {
	return Rule{Kind: Goroutine, Register: register, Offset: g.curg, RA: Same, Saved: [6]int8{g.gM, g.sp, g.pc, g.bp, Unknown, Unknown}}
}

// goroutineWords is how many words of struct g are read: what is needed is among the first.
const goroutineWords = 16

// goroutineX86 reads the places from the beginning of runtime.morestack, and from
// runtime.systemstack, in the form that Go's assembler gives them
// (runtime/asm_amd64.s). It reports whether they are all there.
func goroutineX86(morestack, systemstack []byte) (g goroutineRule, ok bool) {
	for _, p := range []struct {
		code string
		to   *int8
	}{
		{"\x48\x8b\x5f", &g.gM},                     // mov g_m(%rdi), %rbx
		{"\x48\x8b\x04\x24\x48\x89\x47", &g.pc},     // mov (%rsp), %rax; mov %rax, g_sched_pc(%rdi)
		{"\x48\x8d\x44\x24\x08\x48\x89\x47", &g.sp}, // lea 8(%rsp), %rax; mov %rax, g_sched_sp(%rdi)
		{"\x48\x89\x6f", &g.bp},                     // mov %rbp, g_sched_bp(%rdi)
	} {
		_, rest, found := bytes.Cut(morestack, []byte(p.code))
		if !found || len(rest) == 0 || rest[0]%8 != 0 || rest[0] >= 8*goroutineWords {
			return g, false
		}
		*p.to = int8(rest[0] / 8)
	}
	// cmp m_curg(%rbx), %rax; jne; and on the way back mov m_curg(%rbx), %rax
	_, rest, found := bytes.Cut(systemstack, []byte("\x48\x3b\x83"))
	if !found || len(rest) < 4 || !bytes.Contains(rest[4:], append([]byte("\x48\x8b\x83"), rest[:4]...)) {
		return g, false
	}
	g.curg = int32(binary.LittleEndian.Uint32(rest))
	return g, g.curg >= 0 && g.curg%8 == 0
}

// stepGoroutine goes from the scheduler's stack to the goroutine for which it works. What
// lies in memory is doubted: the register must hold the scheduler's g, whose thread has it as
// such, and whose stack begins at this frame; and the goroutine must be of that thread.
// Without a current one it has been put aside, and the stack begins here.
func (s *State) stepGoroutine(m Machine, r *Rule, mem Memory) (End, bool) {
	g0, known := s.Get(r.Register)
	sp, there := s.Get(m.StackPointer())
	if !known || !there {
		return RegisterLost, true
	}
	read := goroutineReader{mem: mem}
	thread := read.word(g0, int64(r.Saved[0])*8)
	begin := read.word(g0, int64(r.Saved[1])*8)
	if !read.failed && begin != sp {
		return Unsupported, true
	}
	scheduler := read.word(thread, 0)
	g := read.word(thread, int64(r.Offset))
	switch {
	case read.failed:
		return Unreadable, true
	case scheduler != g0:
		return Unsupported, true
	case g == 0:
		return Complete, true
	}
	of := read.word(g, int64(r.Saved[0])*8)
	next := read.word(g, int64(r.Saved[1])*8)
	pc := read.word(g, int64(r.Saved[2])*8)
	fp := read.word(g, int64(r.Saved[3])*8)
	switch {
	case read.failed:
		return Unreadable, true
	case of != thread || g == g0:
		return Unsupported, true
	}
	s.Known = 0
	s.Set(m.StackPointer(), next)
	s.Set(m.FramePointer(), fp)
	return s.enter(m, pc, ByCFI)
}

// goroutineReader reads words, and remembers that one could not be read.
type goroutineReader struct {
	mem    Memory
	failed bool
}

func (r *goroutineReader) word(base uint64, offset int64) uint64 {
	if r.failed {
		return 0
	}
	v, ok := r.mem.ReadWord(addr.Abs(base + uint64(offset)))
	r.failed = !ok
	return v
}
