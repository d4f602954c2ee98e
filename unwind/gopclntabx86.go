package unwind

import (
	"bytes"
	"encoding/binary"
	"slices"

	"hallmark/internal/pclntab"
)

// Registers by the numbers that x86-64 instructions give them.
const (
	x86RSP = 4
	x86RBP = 5
)

// placesX86 are the places in Rule.Saved of the registers that C functions preserve, by
// the numbers that instructions give them.
var placesX86 = map[byte]int{3: 0, x86RBP: 1, 12: 2, 13: 3, 14: 4, 15: 5}

// goShapeX86 looks at the instructions of a function for x86-64. Go's assembler makes the
// beginning of a frame itself (cmd/internal/obj/x86/obj6.go, preprocess): since Go 1.21
//
//	push %rbp
//	mov  %rsp, %rbp
//
// and before "sub $n, %rsp", "mov %rbp, n-8(%rsp)", "lea n-8(%rsp), %rbp": in both forms
// the caller's frame pointer is at CFA-16 and so is where the new one points. Functions that
// C code calls begin with the second form and save other registers too
// (runtime/cgo/abi_amd64.h).
func goShapeX86(f *goFunction, flagged bool) goShape {
	s := newGoShape()
	p := goPrologue{f: f, shape: &s, foreign: true}
	p.read()
	if !f.assembly {
		return s
	}
	begun := 0
	if s.frame != never {
		begun = int(s.frame - f.entry)
	}
	if s.saved[1].from == never {
		s.clobber = f.address(writesX86(f.code, 0, x86RBP))
	}
	if flagged && f.Flags&pclntab.SPWrite == 0 {
		return s
	}
	at := writesX86(f.code, begun, x86RSP)
	if at < 0 {
		if !flagged {
			return s
		}
		at = begun // it is told, and not found
	}
	s.switched = f.address(at)
	s.findCleared(f, at)
	s.findLost(f, begun)
	return s
}

// address returns the address of what is this far from the entry; never for a negative
// distance.
func (f *goFunction) address(at int) uint64 {
	if at < 0 {
		return never
	}
	return f.entry + uint64(at)
}

// findCleared finds "xor %ebp, %ebp" behind the switch of stacks.
func (s *goShape) findCleared(f *goFunction, at int) {
	if i := bytes.Index(f.code[min(at, len(f.code)):], []byte{0x31, 0xed}); i >= 0 {
		s.cleared = f.address(at + i + 2)
	}
}

// findLost finds what may be the first instruction that writes the frame pointer, other
// than the last of the function's frame.
func (s *goShape) findLost(f *goFunction, begun int) {
	for at := begun; s.frame != never; {
		at = writesX86(f.code, at, x86RBP)
		if at < 0 {
			return
		}
		if f.code[at-1] == 0x5d && f.deltaAt(f.address(at)) == 0 {
			continue
		}
		s.lost = f.address(at)
		return
	}
}

// goPrologue follows the first instructions of a frame.
type goPrologue struct {
	f       *goFunction
	shape   *goShape
	foreign bool // nothing came before them
}

func (p *goPrologue) read() {
	f := p.f
	begun := f.begun()
	if begun == 0 || begun-f.entry > uint64(len(f.code)) {
		return
	}
	at := int(begun - f.entry)
	if f.code[at-1] == 0x55 && f.deltaAt(begun) == 8 && (at == 1 || f.code[at-2]&0xf0 != 0x40 || bytes.HasPrefix(f.code[at:], []byte{0x48, 0x89, 0xe5})) {
		p.shape.saved[1] = goSaved{begun, -2}
		if bytes.HasPrefix(f.code[at:], []byte{0x48, 0x89, 0xe5}) { // mov %rsp, %rbp
			p.shape.frame = begun + 3
		}
		return
	}
	p.foreign = at <= 8 && (stepX86(f.code) == at)
	for at < len(f.code) {
		n := p.instruction(at)
		if n == 0 {
			break
		}
		at += n
	}
	p.shape.foreign = p.shape.saved[0].from != never
}

// stepX86 returns the length of an instruction that moves the stack pointer by a constant
// or is about flags, 0 for others.
func stepX86(code []byte) int {
	for _, form := range []struct {
		code string
		size int
	}{
		{"\x48\x83\xec", 4}, {"\x48\x81\xec", 7}, {"\x48\x83\xc4", 4}, // sub, add of 8 bits
		{"\x48\x8d\x64\x24", 5}, {"\x48\x8d\xa4\x24", 8}, // lea
		{"\x9c", 1}, {"\xfc", 1}, // pushfq, cld
	} {
		if bytes.HasPrefix(code, []byte(form.code)) {
			return form.size
		}
	}
	return 0
}

// instruction follows the instruction at a distance from the entry and returns its
// length, 0 if it does not belong to the beginning of a frame.
func (p *goPrologue) instruction(at int) int {
	code := p.f.code[at:]
	if n := stepX86(code); n > 0 {
		return n
	}
	op, reg, disp, n := stackOperandX86(code)
	if n == 0 {
		return 0
	}
	delta := p.f.deltaAt(p.f.entry + uint64(at))
	fromCFA := int64(disp) - int64(delta) - 8
	after := p.f.entry + uint64(at+n)
	place, known := placesX86[reg]
	switch {
	case op == 0x8d && reg == x86RBP:
		if fromCFA == -16 && p.shape.saved[1].at == -2 {
			p.shape.frame = after
		}
	case op == 0x8d:
		return 0
	case known && (reg == x86RBP || p.foreign) && p.shape.saved[place].from == never && fromCFA%8 == 0 && fromCFA < -8 && fromCFA > -8*100:
		p.shape.saved[place] = goSaved{after, int8(fromCFA / 8)}
	}
	return n
}

// stackOperandX86 decodes "mov %reg, disp(%rsp)" and "lea disp(%rsp), %reg".
func stackOperandX86(code []byte) (op, reg byte, disp int32, size int) {
	if len(code) < 8 || code[0]&0xfb != 0x48 || code[1] != 0x89 && code[1] != 0x8d || code[2]&7 != 4 || code[3] != 0x24 {
		return 0, 0, 0, 0
	}
	reg = code[2]>>3&7 | code[0]<<1&8
	switch code[2] >> 6 {
	case 0:
		return code[1], reg, 0, 4
	case 1:
		return code[1], reg, int32(int8(code[4])), 5
	case 2:
		return code[1], reg, int32(binary.LittleEndian.Uint32(code[4:])), 8
	}
	return 0, 0, 0, 0
}

// writesX86 returns where, from a distance on, what may be an instruction that writes a
// register has its operation code behind it; -1 for nowhere. It looks at all bytes, as if
// any could begin an instruction: so it may be mistaken where there is none, but misses
// none of those that write 64 bits of a general register. To add a constant to the stack
// pointer, what lists tell of, does not count.
func writesX86(code []byte, from int, reg byte) int {
	for i := from; i < len(code); i++ {
		var next byte
		if i+1 < len(code) {
			next = code[i+1]
		}
		var prefix byte
		if i > 0 {
			prefix = code[i-1]
		}
		if mayWriteX86(prefix, code[i], next, reg) && !(reg == x86RSP && isLeaRSP(code[i:])) {
			return i + 1
		}
	}
	return -1
}

func isLeaRSP(code []byte) bool {
	return len(code) > 2 && code[0] == 0x8d && (code[1] == 0x64 || code[1] == 0xa4) && code[2] == 0x24
}

// Operation codes that write the register which the reg field of the byte behind them
// names, and those that write the one of the r/m field (Intel SDM, volume 2, appendix A).
var (
	writeRegX86 = []byte{0x03, 0x0b, 0x13, 0x1b, 0x23, 0x2b, 0x33, 0x63, 0x69, 0x6b, 0x87, 0x8b, 0x8d,
		0xaf, 0xb6, 0xb7, 0xb8, 0xbc, 0xbd, 0xbe, 0xbf, 0xc1}
	writeRMX86 = []byte{0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31, 0x81, 0x83, 0x87, 0x89, 0x8f, 0xa4, 0xa5, 0xac, 0xad,
		0xb1, 0xb3, 0xba, 0xbb, 0xc1, 0xc7, 0xd1, 0xd3, 0xf7, 0xff}
)

// mayWriteX86 reports whether a byte can be the operation code of an instruction that
// writes a register.
func mayWriteX86(prefix, op, next, reg byte) bool {
	var rex byte
	if prefix&0xf0 == 0x40 {
		rex = prefix
	}
	wide := rex&8 != 0
	switch {
	case reg == x86RSP && !wide:
		return op == 0x5c && rex&1 == 0 && prefix&^4 != 0x89 && prefix != 0x8b // nothing writes half of it; 0x5c is an operand of mov and lea
	case op == 0x58+reg, op == 0xb8+reg && prefix != 0x0f, op == 0x90+reg:
		return rex&1 == 0
	case slices.Contains(writeRegX86, op) && next>>3&7 == reg && rex&4 == 0, op >= 0x40 && op < 0x50 && prefix == 0x0f && next>>3&7 == reg:
		return true
	case slices.Contains(writeRMX86, op) && next>>6 == 3 && next&7 == reg && rex&1 == 0:
		return !(reg == x86RSP && (op == 0x81 || op == 0x83) && isSumX86(next))
	}
	return false
}

// isSumX86 reports whether 0x81 or 0x83 with this byte behind it adds, subtracts or
// compares.
func isSumX86(next byte) bool { return next>>3&7 == 0 || next>>3&7 == 5 || next>>3&7 == 7 }

// goRuleX86 returns the rule at an address, where the stack pointer is delta below where
// it was.
func goRuleX86(f *goFunction, s *goShape, at uint64, delta int32) Rule {
	if f.beginsStack() && !s.foreign {
		return Rule{Kind: Outermost}
	}
	if delta < 0 {
		return goPoppedX86(f, delta)
	}
	popped := delta == 0 && s.frame != never
	if at >= s.switched && !popped {
		return goSwitchedX86(f, s, at)
	}
	r := Rule{Kind: Reg, Register: RSP, Offset: delta + 8, RA: -1, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Unknown, Unknown}}
	if f.isInjected() {
		r.Flags |= Interrupted
	}
	for i := range s.saved {
		switch place := &s.saved[i]; {
		case at >= place.from && 8*int32(-place.at) <= delta+8:
			r.Saved[i] = place.at
		case s.foreign && place.from != never:
			r.Saved[i] = Same
		case i == 1 && at >= s.clobber:
			r.Saved[i] = Unknown
		case i == 1 && delta > 0 && place.from == never && !f.assembly:
			r.Saved[i] = Unknown // no compiler makes such a frame
		}
	}
	return r
}

// goPoppedX86 returns the rule where the return address is no longer on the stack: with
// "pop %r12" syscall.rawVforkSyscall takes it from there, which its child would overwrite.
func goPoppedX86(f *goFunction, delta int32) Rule {
	at := f.entry
	for _, d := range f.deltas {
		if d.bytes < 0 {
			break
		}
		at = d.end
	}
	n := at - f.entry
	if delta != -8 || n < 2 || n > uint64(len(f.code)) || string(f.code[n-2:n]) != "\x41\x5c" {
		return unusual()
	}
	return Rule{Kind: Reg, Register: RSP, RA: Same, Link: R12, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Unknown, Unknown}}
}

// goSwitchedX86 returns the rule where the stack pointer may be on another stack. The
// function's own frame pointer still leads to its caller, as Go's tracer relies on
// (runtime/tracestack.go, fpTracebackPCs). Where it was cleared, the caller is none on
// whose return anything waits: the goroutine that parked, or whose stack grows. So it is
// for runtime.mcall, from whose callee nothing returns, before Go 1.23 too.
func goSwitchedX86(f *goFunction, s *goShape, at uint64) Rule {
	switch {
	case at >= s.cleared, f.name == "runtime.mcall":
		return Rule{Kind: Outermost}
	case at >= s.frame && at < s.lost:
		return Rule{
			Kind: Reg, Register: RBP, Offset: 16, RA: -1, Flags: OtherStack,
			Saved: [6]int8{Unknown, -2, Unknown, Unknown, Unknown, Unknown},
		}
	}
	return unusual()
}
