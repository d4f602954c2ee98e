package unwind

import (
	"encoding/binary"

	"hallmark/internal/pclntab"
)

// Instructions of Go's assembler for arm64 (cmd/internal/obj/arm64/obj7.go, preprocess).
const (
	armSaveFP     = 0xf81f83fd // stur x29, [sp, #-8]
	armSavePair   = 0xa93ffa9d // stp x29, x30, [x20, #-8], before sp is x20
	armSetFP      = 0xd10023fd // sub x29, sp, #8
	armPair       = 0xa9007bfd // stp x29, x30, [sp, #OFFSET]
	armPairMask   = 0xffc07fff
	armLongestAsm = 32 // instructions before armPair
)

// goShapeARM64 looks at the instructions of a function for arm64. A frame has the return
// address at the stack pointer, and the caller's frame pointer 8 bytes below it, where the
// frame pointer then points. The list says that there is a frame once the stack pointer
// has moved, and with it the return address is stored.
//
// Functions that C code calls have frames of their own, with the pair of registers
// anywhere.
func goShapeARM64(f *goFunction, flagged bool) goShape {
	s := newGoShape()
	begun := f.begun()
	first := 0
	if begun != 0 {
		first = int(begun-f.entry) / 4
		s.readARM64(f, begun, first)
	}
	if !f.assembly {
		return s
	}
	if s.saved[0].from == never {
		s.clobber = f.address(f.findARM64(0, writesFP))
	}
	if flagged && f.Flags&pclntab.SPWrite == 0 {
		return s
	}
	if s.frame != never {
		first = int(s.frame-f.entry) / 4
	}
	at := f.findARM64(first, setsSP)
	if at < 0 {
		if !flagged {
			return s
		}
		at = 4 * first
	}
	s.switched = f.address(at)
	s.lost = f.address(f.findARM64(first, writesFP))
	if !f.growsStack() {
		s.begins = f.address(f.findARM64(0, clearsFP))
	}
	return s
}

// word returns the nth instruction, 0 if there is none.
func (f *goFunction) word(n int) uint32 {
	if n < 0 || 4*n+4 > len(f.code) {
		return 0
	}
	return binary.LittleEndian.Uint32(f.code[4*n:])
}

// findARM64 returns the distance from the entry of the end of the first instruction, from the
// nth on, that is of a kind; -1 if there is none.
func (f *goFunction) findARM64(n int, is func(uint32) bool) int {
	for ; 4*n+4 <= len(f.code); n++ {
		if is(f.word(n)) {
			return 4*n + 4
		}
	}
	return -1
}

// readARM64 follows the first instructions of a frame, of which nth is the first in it.
func (s *goShape) readARM64(f *goFunction, begun uint64, nth int) {
	const own = -1 // where the frame pointer is saved: below the stack pointer
	switch {
	case f.word(nth) == armSaveFP:
		s.saved[0] = goSaved{begun + 4, own}
		nth++
	case f.word(nth-2) == armSavePair:
		s.saved[0] = goSaved{begun, own}
	default:
		for n := nth; n < nth+armLongestAsm; n++ {
			if w := f.word(n); w&armPairMask == armPair {
				s.saved[0] = goSaved{f.entry + 4*uint64(n) + 4, int8(w>>15&0x7f<<1) >> 1}
				s.foreign = true
				return
			}
		}
		return
	}
	if f.word(nth) == armSetFP {
		s.frame = f.entry + 4*uint64(nth) + 4
	}
}

// setsSP reports whether an instruction writes the stack pointer other than by adding a
// constant to it: add, sub and the logical ones with a constant, of other registers, and
// add and sub of extended registers.
func setsSP(w uint32) bool {
	sp, from := w&0x1f == 31, w>>5&0x1f
	switch w >> 23 & 0x1ff {
	case 0x122, 0x1a2: // add, sub
		return sp && from != 31
	case 0x124, 0x164, 0x1a4: // and, orr, eor
		return sp
	}
	return sp && (w>>21 == 0x459 || w>>21 == 0x659)
}

// writesFP reports whether an instruction may write x29.
func writesFP(w uint32) bool {
	first, second := w&0x1f == 29, w>>10&0x1f == 29
	switch {
	case w>>26&7 == 5: // branches, and mrs
		return first && w>>20 == 0xd53
	case w>>27&1 == 0 || w>>25&1 == 1: // no loads or stores
		return first
	case w>>27&7 == 5: // pairs
		return w>>22&1 == 1 && (first || second)
	}
	return first && w>>22&3 != 0
}

// clearsFP reports whether an instruction is "mov x29, xzr".
func clearsFP(w uint32) bool { return w == 0xaa1f03fd }

// goRuleARM64 returns the rule at an address, where the stack pointer is delta below where
// it was.
func goRuleARM64(f *goFunction, s *goShape, at uint64, delta int32) Rule {
	none := [6]int8{Unknown, Unknown, Unknown, Unknown, Unknown, Unknown}
	switch {
	case f.beginsStack() && !s.foreign:
		return Rule{Kind: Outermost}
	case delta < 0:
		return unusual()
	case f.isInjected():
		return unusual() // the interrupted function's registers lie above the frame
	case at >= s.switched && !(delta == 0 && s.frame != never):
		return goSwitchedARM64(s, at, delta)
	}
	r := Rule{Kind: Reg, Register: SP, Offset: delta, RA: Same, Link: X30, Saved: none}
	r.Saved[0] = Same
	place := s.saved[0]
	switch {
	case delta == 0:
	case s.foreign && at >= place.from:
		r.Flags, r.Saved[0], r.RA = SavedAtRegister|ReturnAtRegister, place.at, place.at+1
		return r
	case s.foreign:
		return r
	case place.from != never:
		r.Flags, r.RA = SavedAtRegister|ReturnAtRegister, 0
		if at >= place.from {
			r.Saved[0] = place.at
		}
		return r
	default:
		return unusual()
	}
	if at >= s.clobber {
		r.Saved[0] = Unknown
	}
	return r
}

// goSwitchedARM64 returns the rule where the stack pointer may be on another stack, as
// goSwitchedX86 does.
func goSwitchedARM64(s *goShape, at uint64, delta int32) Rule {
	if at >= s.begins {
		return Rule{Kind: Outermost}
	}
	if at < s.frame || at >= s.lost {
		return unusual()
	}
	return Rule{
		Kind: Reg, Register: X29, Offset: delta + 8, RA: 1, Flags: OtherStack | SavedAtRegister | ReturnAtRegister,
		Saved: [6]int8{0, Unknown, Unknown, Unknown, Unknown, Unknown},
	}
}

// address returns the address of what is this far from the entry; never for a negative
// distance.
func (f *goFunction) address(at int) uint64 {
	if at < 0 {
		return never
	}
	return f.entry + uint64(at)
}
