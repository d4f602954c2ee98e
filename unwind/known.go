package unwind

import (
	"bytes"
	"encoding/binary"
	"slices"

	"hallmark/addr"
)

// x86Restorer is the code to which the kernel lets signal handlers return:
// "mov $15, %rax; syscall", rt_sigreturn. Debuggers and the C compiler's run-time library
// know it by these bytes, so that all C libraries and Go have the same.
const x86Restorer = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"

// armRestorer is the same for arm64, "mov x8, #139; svc #0": in the kernel's vdso.
const armRestorer = "\x68\x11\x80\xd2\x01\x00\x00\xd4"

// x86CloneChild is how musl's clone goes on in the new thread: "pop %rdi; call *%r9;
// mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall; hlt", exit. Nothing called it.
const x86CloneChild = "\x5f\x41\xff\xd1\x89\xc7\x31\xc0\xb0\x3c\x0f\x05\xf4"

// x86StartContext is where functions of makecontext return to in glibc, __start_context:
// "mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi; je". Nothing called them.
const x86StartContext = "\x48\x89\xdc\x48\x8b\x3c\x24\x48\x85\xff\x74"

// x86Clone3 is how glibc's clone3 goes on behind its system call, on purpose without call
// frame information: "syscall; test %rax, %rax; jl; je; ret", and in the new thread "xor %ebp,
// %ebp; and $-16, %rsp". All but the new thread, which is there for an instant only, have
// what clone3 was called with on the stack. In the new one there is nothing yet, and no code
// is where nothing is.
var x86Clone3 = [2]string{"\x0f\x05\x48\x85\xc0\x7c", "\x74\x01\xc3\x31\xed\x48\x83\xe4\xf0"}

// known makes rows of code without call frame information that is known by its bytes, and
// of the file's entry, to which the kernel jumps.
//
// A signal handler returns to a restorer as if it had called it from the instruction
// before, so that has the rule too where it is there to fill: every C library has a
// "nop" for that.
func (b *builder) known() error {
	gaps := b.gaps()
	part := b.layer(Known).part()
	if err := b.entry(part, gaps); err != nil {
		return err
	}
	restorer, fill, before := x86Restorer, []string{"\x90", "\xcc"}, off(1)
	if b.file.machine == ARM64 {
		restorer, fill, before = armRestorer, []string{"\x1f\x20\x03\xd5"}, 4
	}
	const longest = 16
	return b.eachGap(b.widened(gaps, off(len(x86StartContext))), off(len(restorer)), longest, func(at off, code []byte) {
		each(code, restorer, func(i int) {
			start := at + off(i)
			if b.file.machine == ARM64 && start%4 != 0 {
				return
			}
			for _, f := range fill {
				if bytes.HasSuffix(code[:i], []byte(f)) {
					start = at + off(i) - before
				}
			}
			part.add(start, at+off(i+len(restorer)), signalRule(b.file.machine))
		})
		if b.file.machine == X86_64 {
			part.threads(at, code)
		}
	})
}

// threads adds what is known of where threads and contexts begin.
func (p *part) threads(at off, code []byte) {
	each(code, x86CloneChild, func(i int) {
		p.add(at+off(i+1), at+off(i+len(x86CloneChild)), Rule{Kind: Outermost})
	})
	each(code, x86StartContext, func(i int) {
		if i > 0 {
			p.add(at+off(i-1), at+off(i), Rule{Kind: Outermost}) // where a call would be
		}
	})
	each(code, x86Clone3[0], func(i int) {
		end := i + len(x86Clone3[0]) + 1 // behind how far the jump goes
		if end <= len(code) && bytes.HasPrefix(code[end:], []byte(x86Clone3[1])) {
			p.add(at+off(i), at+off(end+3), stackX86(8))
		}
	})
}

// widened returns gaps with a number of bytes of the code behind them.
func (b *builder) widened(gaps []gap, more off) []gap {
	code := b.code()
	slices.SortFunc(code, gap.compare)
	wide := slices.Clone(gaps)
	for i := range wide {
		g := &wide[i]
		for len(code) > 0 && code[0].end < g.end {
			code = code[1:]
		}
		if len(code) > 0 {
			g.end = min(g.end+more, code[0].end)
		}
	}
	return wide
}

// entry adds the code at the file's entry up to where it jumps away, if it is in a gap.
func (b *builder) entry(p *part, gaps []gap) error {
	virt := uint64(b.file.Entry)
	start, _, ok := b.file.code(virt, virt+1)
	if !ok {
		return nil
	}
	const longest = 128
	for _, g := range gaps {
		if start < g.start || start >= g.end {
			continue
		}
		code, err := b.file.read(uint64(start), uint64(min(g.end-start, longest)))
		if err != nil {
			return b.damaged(err)
		}
		n := entryX86(code, virt)
		if b.file.machine == ARM64 {
			n = entryARM64(code)
		}
		p.add(start, start+off(n), Rule{Kind: Outermost})
	}
	return nil
}

// entryX86 returns how many bytes of code run before it jumps away: up to an
// unconditional jump, or to a call from which nothing returns, since another function
// begins behind it.
func entryX86(code []byte, virt uint64) int {
	called := false
	for at := 0; at < len(code); {
		i := decodeX86(code[at:])
		here := virt + uint64(at)
		switch {
		case i.size == 0:
			return at
		case called && (here%16 == 0 || i.isNop()):
			return at
		}
		at += i.size
		switch {
		case i.table == 0 && (i.op == 0xe9 || i.op == 0xeb || i.op == 0xc3 || i.op == 0xf4 || i.op == 0xff && i.modrm>>3&7 == 4), i.table == 1 && i.op == 0x0b:
			return at
		}
		called = i.table == 0 && (i.op == 0xe8 || i.op == 0xff && i.modrm>>3&7 == 2)
	}
	return len(code)
}

// entryARM64 is entryX86 for arm64: up to a jump, brk, or a call.
func entryARM64(code []byte) int {
	for at := 0; at+4 <= len(code); at += 4 {
		w := binary.LittleEndian.Uint32(code[at:])
		if w>>26&0x1f == 5 || w>>25 == 0x6b || w>>21 == 0x6a1 { // b and bl, br blr and ret, brk
			return at + 4
		}
	}
	return len(code)
}

// signalRule is the rule of a restorer: the kernel's signal frame is where the stack
// pointer is.
func signalRule(m Machine) Rule {
	if m == ARM64 {
		return Rule{Kind: Signal, Register: SP}
	}
	return Rule{Kind: Signal, Register: RSP}
}

// The code that a signal handler returns to ends with a system call, during which execution stands
// behind it: where, by the call frame information, another function begins, or nothing is.
// There the registers are still in the signal frame: once the kernel has taken them from
// it, execution stands elsewhere.

var systemCalls = map[Machine][]byte{
	X86_64: {0x0f, 0x05},             // syscall
	ARM64:  {0x01, 0x00, 0x00, 0xd4}, // svc #0
}

// maxSigreturns is how many such functions are looked at in a file, which has one.
const maxSigreturns = 64

// sigreturns adds a layer below l that says so of the gaps behind such code.
func (b *builder) sigreturns(l *layer) error {
	var behind *part
	call, found := systemCalls[b.file.machine], 0
	for _, p := range l.parts {
		for i := range p.spans {
			s := &p.spans[i]
			if s.n == 0 || p.spanEnd(s).Kind != Signal || s.end-s.start < uint32(len(call)) {
				continue
			}
			if found++; found > maxSigreturns {
				return nil
			}
			end := l.base + addr.Offset(s.end)
			code, err := b.file.read(uint64(end)-uint64(len(call)), uint64(len(call)))
			if err != nil {
				return b.damaged(err)
			}
			if !bytes.Equal(code, call) {
				continue
			}
			if behind == nil {
				behind = b.layer(l.source).part()
			}
			behind.add(end, end+1, p.spanEnd(s))
		}
	}
	return nil
}

// spanEnd returns what there is to know of a function's last rule if it is of kind
// Signal; of others only the kind.
func (p *part) spanEnd(s *span) Rule {
	first := p.rules.list[p.rows[s.first+s.n-1].rule][0]
	return Rule{Kind: Kind(first), Register: Register(first >> 8), Offset: int32(first >> 32)}
}
