package symtab

import (
	"bytes"
	"encoding/binary"
)

// pltMachine is what is known of the procedure linkage tables of a processor.
type pltMachine struct {
	// Types of relocations that fill a slot with the address of a symbol (the same
	// whether lazily or not), and with what a function returns that is at the addend.
	globDat, jumpSlot, irelative uint32

	step int // entries start at multiples of it
	// decode returns the slot that the code at an address jumps through, and how many
	// bytes the entry has.
	decode func(code []byte, at, got uint64) (slot uint64, size int, ok bool)
}

// pltMachines are keyed by e_machine. The numbers are those of each psABI.
var pltMachines = map[uint16]*pltMachine{
	emX86:     {6, 7, 42, 8, decodePLT386},
	emX86_64:  {6, 7, 37, 8, decodePLTAMD64},
	emAArch64: {1025, 1026, 1032, 4, decodePLTARM64},
}

const (
	emX86     = 3
	emX86_64  = 62
	emAArch64 = 183
)

// decodePLTAMD64 understands "jmp *slot(%rip)" behind what linkers put before it: a
// mark for indirect branches, and in mold's case "mov $n, %r11d".
func decodePLTAMD64(code []byte, at, _ uint64) (slot uint64, size int, ok bool) {
	rest := bytes.TrimPrefix(code, []byte("\xf3\x0f\x1e\xfa")) // endbr64
	if len(rest) >= 6 && rest[0] == 0x41 && rest[1] == 0xbb {
		rest = rest[6:]
	}
	rest = bytes.TrimPrefix(rest, []byte{0xf2}) // bnd
	if len(rest) < 6 || rest[0] != 0xff || rest[1] != 0x25 {
		return 0, 0, false
	}
	next := at + uint64(len(code)-len(rest)) + 6
	return next + displacement(rest), sizeOnX86(code), true
}

// decodePLT386 understands "jmp *slot" and, in position-independent code, "jmp
// *slot(%ebx)" with the address of the global offset table in %ebx.
func decodePLT386(code []byte, _, got uint64) (slot uint64, size int, ok bool) {
	rest := bytes.TrimPrefix(code, []byte("\xf3\x0f\x1e\xfb")) // endbr32
	if len(rest) < 6 || rest[0] != 0xff || rest[1] != 0x25 && rest[1] != 0xa3 {
		return 0, 0, false
	}
	slot = displacement(rest)
	if rest[1] == 0xa3 {
		slot += got
	}
	return slot & 0xffffffff, sizeOnX86(code), true
}

// sizeOnX86 returns the size of the entry that code starts with: 16, but 8 where there
// is nothing but the jump, filled up by "xchg %ax, %ax".
func sizeOnX86(code []byte) int {
	if len(code) >= 8 && code[0] == 0xff && code[6] == 0x66 && code[7] == 0x90 {
		return 8
	}
	return 16
}

// displacement returns the sum that the operand of "jmp *" adds.
func displacement(jmp []byte) uint64 { return uint64(int32(binary.LittleEndian.Uint32(jmp[2:]))) }

// Instructions of the entries for aarch64.
const (
	arm64BTI      = 0xd503245f // bti c
	arm64ADRP     = 0x90000010 // adrp x16, PAGE
	arm64ADRPMask = 0x9f00001f
	arm64LDR      = 0xf9400211 // ldr x17, [x16, #OFFSET]
	arm64LDRMask  = 0xffc003ff
	arm64BR       = 0xd61f0220 // br x17
	arm64NOP      = 0xd503201f
)

// decodePLTARM64 understands "adrp x16; ldr x17, [x16, slot]", and what follows up to
// "br x17" as a part of the entry.
func decodePLTARM64(code []byte, at, _ uint64) (slot uint64, size int, ok bool) {
	word := func(i int) uint32 {
		if len(code) < 4*i+4 {
			return 0
		}
		return binary.LittleEndian.Uint32(code[4*i:])
	}
	i := 0
	if word(0) == arm64BTI {
		i = 1
	}
	adrp, ldr := word(i), word(i+1)
	if adrp&arm64ADRPMask != arm64ADRP || ldr&arm64LDRMask != arm64LDR {
		return 0, 0, false
	}
	pages := int64(uint64(adrp>>5&0x7ffff<<2|adrp>>29&3)<<43) >> 43
	slot = (at+4*uint64(i))&^0xfff + uint64(pages<<12) + uint64(ldr>>10&0xfff)*8
	const longest = 8
	for i += 2; word(i) != arm64BR; i++ {
		if i == longest {
			return 0, 0, false
		}
	}
	for i++; word(i) == arm64NOP && i < longest; i++ {
	}
	return slot, 4 * i, true
}
