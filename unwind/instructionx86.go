package unwind

import "slices"

// Registers by the numbers that x86-64 instructions give them.
const (
	x86RSP = 4
	x86RBP = 5
)

// x86Instruction is what is looked at in an instruction for x86-64 (Intel SDM, volume 2,
// chapter 2 and appendix A).
type x86Instruction struct {
	table  byte // 0 for operation codes of one byte, 1 behind 0f, 2 behind 0f 38, 3 behind 0f 3a
	op     byte
	modrm  byte
	has    bool // modrm
	reg    byte // the register that modrm's reg field names
	rm     byte // that its r/m field names, or the operation code itself
	third  byte // the one in the VEX prefix; 0xff without
	base   byte // the SIB byte
	size   int
	wide   bool // 64 bits
	vector bool // with a VEX or EVEX prefix
}

// decodeX86 returns the first instruction of code; it has no size if it is not understood
// or cut off.
func decodeX86(code []byte) (i x86Instruction) {
	i.third = 0xff
	at, short := 0, false
	for at < len(code) && isPrefixX86(code[at]) {
		short = short || code[at] == 0x66
		at++
	}
	var rex byte
	if at < len(code) && code[at]&0xf0 == 0x40 {
		rex = code[at]
		at++
	}
	given := len(code)
	const longest = 16 // after prefixes
	if given-at < longest {
		code = append(append(make([]byte, 0, given+longest), code...), make([]byte, longest)...)
	}
	switch c := code[at]; {
	case c == 0xc5:
		i.vector, i.table, i.third = true, 1, ^code[at+1]>>3&15
		rex |= ^code[at+1] >> 5 & 4
		at += 2
	case c == 0xc4:
		i.vector, i.table, i.third = true, code[at+1]&0x1f, ^code[at+2]>>3&15
		rex |= ^code[at+1] >> 5 & 7
		at += 3
	case c == 0x62:
		i.vector, i.table, i.third = true, code[at+1]&7, ^code[at+2]>>3&15
		rex |= ^code[at+1] >> 5 & 7
		at += 4
	case c == 0x0f && (code[at+1] == 0x38 || code[at+1] == 0x3a):
		i.table = 2 + code[at+1]>>1&1
		at += 2
	case c == 0x0f:
		i.table = 1
		at++
	}
	i.op, i.wide = code[at], rex&8 != 0
	at++
	var imm int
	i.has, imm = operandsX86(i.table, i.op)
	i.rm = i.op&7 | rex<<3&8
	if i.has {
		i.modrm = code[at]
		i.reg = i.modrm>>3&7 | rex<<1&8
		i.rm = i.modrm&7 | rex<<3&8
		i.base = code[at+1]
		at += addressX86(i.modrm, i.base)
	}
	switch {
	case imm < 0 || i.table > 3:
		return x86Instruction{}
	case i.table == 0 && i.op&0xfe == 0xf6 && i.modrm>>3&7 < 2: // test
		imm = 1 + 3*int(i.op&1)
	case i.table == 0 && i.op&0xf8 == 0xb8 && i.wide:
		imm = 8
	}
	if imm == 4 && short && i.op&0xfe != 0xe8 {
		imm = 2
	}
	if i.size = at + imm; i.size > given {
		return x86Instruction{}
	}
	return i
}

func isPrefixX86(c byte) bool {
	switch c {
	case 0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65:
		return true
	}
	return false
}

// addressX86 returns the bytes from a ModRM byte up to the end of the displacement.
func addressX86(modrm, sib byte) int {
	n, mod := 1, modrm>>6
	if mod == 3 {
		return 1
	}
	if modrm&7 == 4 {
		n++
		if mod == 0 && sib&7 == 5 {
			n += 4
		}
	}
	switch {
	case mod == 0 && modrm&7 == 5, mod == 2:
		n += 4
	case mod == 1:
		n++
	}
	return n
}

// operandsX86 returns whether an operation code is followed by a ModRM byte, and how many
// bytes of constants; -1 if it is none of 64-bit code.
func operandsX86(table, op byte) (modrm bool, imm int) {
	switch table {
	case 0:
		return operandsOneX86(op)
	case 1:
		return operandsTwoX86(op)
	case 2:
		return true, 0
	}
	return true, 1
}

func operandsOneX86(op byte) (modrm bool, imm int) {
	switch {
	case op < 0x40 && op&7 < 4:
		return true, 0
	case op < 0x40 && op&7 == 4:
		return false, 1
	case op < 0x40 && op&7 == 5, op == 0x68, op == 0xa9, op >= 0xb8 && op < 0xc0, op == 0xe8, op == 0xe9:
		return false, 4
	case op < 0x50, op == 0x60, op == 0x61, op == 0x62, op == 0x82, op == 0x9a, op == 0xc4, op == 0xc5, op == 0xce, op == 0xd4, op == 0xd5, op == 0xd6, op == 0xea:
		return false, -1
	case op == 0x63, op >= 0x84 && op < 0x90, op >= 0xd0 && op < 0xd4, op >= 0xd8 && op < 0xe0, op == 0xf6, op == 0xf7, op >= 0xfe:
		return true, 0
	case op == 0x69, op == 0x81, op == 0xc7:
		return true, 4
	case op == 0x6b, op == 0x80, op == 0x83, op == 0xc0, op == 0xc1, op == 0xc6:
		return true, 1
	case op == 0x6a, op >= 0x70 && op < 0x80, op == 0xa8, op >= 0xb0 && op < 0xb8, op == 0xcd, op >= 0xe0 && op < 0xe8, op == 0xeb:
		return false, 1
	case op >= 0xa0 && op < 0xa4:
		return false, 8
	case op == 0xc2, op == 0xca:
		return false, 2
	case op == 0xc8:
		return false, 3
	}
	return false, 0
}

func operandsTwoX86(op byte) (modrm bool, imm int) {
	switch {
	case op >= 0x05 && op < 0x0c, op >= 0x30 && op < 0x38, op == 0x77, op >= 0xa0 && op < 0xa3, op >= 0xa8 && op < 0xab, op >= 0xc8 && op < 0xd0:
		return false, 0
	case op >= 0x80 && op < 0x90:
		return false, 4
	case op >= 0x70 && op < 0x74, op == 0xa4, op == 0xac, op == 0xba, op == 0xc2, op == 0xc4, op == 0xc5, op == 0xc6:
		return true, 1
	}
	return true, 0
}

// writes reports whether the instruction may write one of the registers 0 to 7. What
// pushes and pops do to the stack pointer does not count.
func (i *x86Instruction) writes(reg byte) bool {
	inReg := i.has && i.reg == reg
	inRM := i.has && i.modrm>>6 == 3 && i.rm == reg
	group := i.modrm >> 3 & 7
	switch {
	case i.vector || i.table > 1: // most write vector registers
		return (inReg || inRM || i.third == reg) && i.table < 4 && slices.Contains(generalX86[i.table], i.op)
	case i.table == 1:
		return inReg && slices.Contains(regTwoX86, i.op) || inRM && slices.Contains(rmTwoX86, i.op) || i.op&0xf8 == 0xc8 && i.rm == reg
	case i.op&0xf8 == 0x58, i.op&0xf0 == 0xb0, i.op > 0x90 && i.op < 0x98:
		return i.rm == reg
	case i.op == 0xc9: // leave
		return reg == x86RSP || reg == x86RBP
	case i.op >= 0x80 && i.op <= 0x83:
		return inRM && group != 7
	case i.op&0xfe == 0xf6:
		return inRM && (group == 2 || group == 3)
	case i.op >= 0xfe:
		return inRM && group < 2
	}
	return inReg && slices.Contains(regOneX86, i.op) || inRM && slices.Contains(rmOneX86, i.op)
}

// generalX86 has, by table, the operation codes with a VEX or EVEX prefix, or behind 0f 38
// and 0f 3a, that write general registers: of BMI, movbe, crc32 and adx, and those that take
// numbers out of vectors and masks.
var generalX86 = [4][]byte{
	1: {0x2c, 0x2d, 0x50, 0x78, 0x79, 0x7e, 0x93, 0xc5, 0xd7},
	2: {0xf0, 0xf1, 0xf2, 0xf3, 0xf5, 0xf6, 0xf7},
	3: {0x14, 0x15, 0x16, 0x17, 0xf0},
}

// Operation codes that write the register of the reg field, and of the r/m field: those
// of the first table, and of the one behind 0f.
var (
	regOneX86 = []byte{0x02, 0x03, 0x0a, 0x0b, 0x12, 0x13, 0x1a, 0x1b, 0x22, 0x23, 0x2a, 0x2b, 0x32, 0x33, 0x63, 0x69, 0x6b, 0x86, 0x87, 0x8a, 0x8b, 0x8d}
	rmOneX86  = []byte{0x00, 0x01, 0x08, 0x09, 0x10, 0x11, 0x18, 0x19, 0x20, 0x21, 0x28, 0x29, 0x30, 0x31, 0x86, 0x87, 0x88, 0x89, 0x8c, 0x8f, 0xc0, 0xc1, 0xc6, 0xc7, 0xd0, 0xd1, 0xd2, 0xd3}
	regTwoX86 = []byte{0x02, 0x03, 0x2c, 0x2d, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
		0x50, 0xaf, 0xb6, 0xb7, 0xb8, 0xbc, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1, 0xc5, 0xd7}
	rmTwoX86 = []byte{0x00, 0x01, 0x20, 0x21, 0x7e, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f,
		0xa4, 0xa5, 0xab, 0xac, 0xad, 0xb0, 0xb1, 0xb3, 0xba, 0xbb, 0xc0, 0xc1, 0xc7}
)

// addsToStack reports whether the instruction adds a constant to the stack pointer.
func (i *x86Instruction) addsToStack() bool {
	if i.table != 0 || i.vector || !i.has {
		return false
	}
	group := i.modrm >> 3 & 7
	switch i.op {
	case 0x81, 0x83:
		return i.modrm>>6 == 3 && i.rm == x86RSP && (group == 0 || group == 5)
	case 0x8d:
		return i.reg == x86RSP && i.modrm&7 == 4 && i.base == 0x24 && i.rm < 8
	}
	return false
}
