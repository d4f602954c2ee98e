package unwind

import (
	"bytes"
	"encoding/binary"

	"hallmark/internal/pclntab"
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
	p := goPrologue{f: f, shape: &s}
	p.read()
	if !f.assembly {
		return s
	}
	switches := !flagged || f.Flags&pclntab.SPWrite != 0
	for at := 0; at < len(f.code) && f.entry+uint64(at) < f.end; {
		i := decodeX86(f.code[at:])
		if i.size == 0 {
			s.unknown(f.entry+uint64(at), switches)
			break
		}
		end := f.entry + uint64(at+i.size)
		if switches && i.writes(x86RSP) && !i.addsToStack() {
			s.switched = min(s.switched, end)
		}
		if i.writes(x86RBP) {
			s.frameWritten(f, end)
		}
		if s.switched != never && clearsRBP(f.code[at:]) && !f.growsStack() {
			s.begins = min(s.begins, end)
		}
		at += i.size
	}
	if len(f.code) == goMaxCode {
		s.unknown(f.entry+goMaxCode, switches)
	}
	return s
}

// clearsRBP reports whether the first instruction is "xor %ebp, %ebp" or "mov $0, %rbp".
func clearsRBP(code []byte) bool {
	return bytes.HasPrefix(code, []byte{0x31, 0xed}) || bytes.HasPrefix(code, []byte{0x48, 0xc7, 0xc5, 0, 0, 0, 0})
}

// frameWritten notes that the instruction that ends here writes the frame pointer.
func (s *goShape) frameWritten(f *goFunction, end uint64) {
	switch {
	case s.frame != never && end <= s.frame || f.deltaAt(end) == 0 && s.saved[1].from != never:
		// the beginning of the frame, or its end
	case s.saved[1].from == never:
		s.clobber = min(s.clobber, end)
	default:
		s.lost = min(s.lost, end)
	}
}

// unknown notes that from here on it is not known what instructions do.
func (s *goShape) unknown(at uint64, switches bool) {
	if switches {
		s.switched = min(s.switched, at)
	}
	s.clobber, s.lost = min(s.clobber, at), min(s.lost, at)
}

// goPrologue follows the first instructions of a frame.
type goPrologue struct {
	f     *goFunction
	shape *goShape
}

var movRSPtoRBP = []byte{0x48, 0x89, 0xe5}

func (p *goPrologue) read() {
	f, s := p.f, p.shape
	begun := f.begun()
	if begun <= f.entry || begun-f.entry > uint64(len(f.code)) { // without instructions there is no beginning
		return
	}
	at := int(begun - f.entry)
	foreign := f.assembly && (f.code[0] == 0x55 && at == 1 || stepX86(f.code) == at)
	if f.code[at-1] == 0x55 && f.deltaAt(begun) == 8 && (at == 1 || f.code[at-2]&0xf0 != 0x40 || bytes.HasPrefix(f.code[at:], movRSPtoRBP)) {
		s.saved[1] = goSaved{begun, -2}
		if bytes.HasPrefix(f.code[at:], movRSPtoRBP) {
			s.frame = begun + 3
			at += 3
		}
		if !foreign {
			return
		}
	}
	for at < len(f.code) {
		n := p.instruction(at)
		if n == 0 {
			break
		}
		at += n
	}
	s.foreign = foreign
	for i := range s.saved {
		s.foreign = s.foreign && s.saved[i].from != never
	}
	for i := range s.saved {
		if i != 1 && !s.foreign {
			s.saved[i].from = never // what is stored are arguments
		}
	}
}

// stepX86 returns the length of an instruction that moves the stack pointer by a constant
// or is about flags, 0 for others.
func stepX86(code []byte) int {
	i := decodeX86(code)
	if i.size > 0 && (i.addsToStack() || i.table == 0 && (i.op == 0x9c || i.op == 0xfc)) { // pushfq, cld
		return i.size
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
	case known && p.shape.saved[place].from == never && fromCFA%8 == 0 && fromCFA < -8 && fromCFA > -8*100:
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
	r := Rule{Kind: Reg, Register: RSP, Offset: delta + 8, RA: -1, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Same, Unknown}} // r14 is g
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
	n := f.above - f.entry
	if delta != -8 || n < 2 || n > uint64(len(f.code)) || string(f.code[n-2:n]) != "\x41\x5c" {
		return unusual()
	}
	return Rule{Kind: Reg, Register: RSP, RA: Same, Link: R12, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Unknown, Unknown}}
}

// goSwitchedX86 returns the rule where the stack pointer may be on another stack. The
// function's own frame pointer still leads to its caller, as Go's tracer relies on
// (runtime/tracestack.go, fpTracebackPCs). runtime.morestack has none: see goroutine.go.
// runtime.mcall clears it, because what it calls never returns, and lets other goroutines run:
// a stack begins there.
func goSwitchedX86(f *goFunction, s *goShape, at uint64) Rule {
	switch {
	case f.stranded:
		return f.goroutine.rule(R14)
	case at >= s.begins:
		return Rule{Kind: Outermost}
	case at < s.frame || at >= s.lost:
		return unusual()
	}
	return Rule{
		Kind: Reg, Register: RBP, Offset: 16, RA: -1, Flags: OtherStack,
		Saved: [6]int8{Unknown, -2, Unknown, Unknown, Unknown, Unknown},
	}
}
