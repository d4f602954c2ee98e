package unwind

import "encoding/binary"

// followedEntryX86 is the state at a function's first instruction: there is a return address.
var followedEntryX86 = followedState{depth: 8}

// followedRuleX86 is the rule of a place that was followed.
func followedRuleX86(s followedState) Rule {
	r := stackX86(s.depth)
	for i, depth := range s.saved {
		if depth != 0 {
			r.Saved[i] = int8(-depth / 8)
		}
	}
	return r
}

// mostFollowed is how many bytes of stack a function has that is followed.
const mostFollowed = 512

// followX86 says what the first instruction of code does to the stack.
func followX86(code []byte, s followedState) (followedStep, bool) {
	i := decodeX86(code)
	if i.size == 0 || i.vector || i.table > 1 {
		return followedStep{}, false
	}
	f := followedStep{size: i.size, next: s, on: true}
	code = code[:i.size]
	if i.table == 1 {
		switch {
		case i.op&0xf0 == 0x80: // conditional jumps
			f.jumpsBy(code, 4)
		case i.op == 0x0b: // ud2
			f.on = false
		case i.op < 0x0d || i.op == 0x34 || i.op == 0x35 || i.op == 0xa1 || i.op == 0xa9: // system calls, and segments
			return f, false
		}
		return f, f.keepsX86(&i)
	}
	group := i.modrm >> 3 & 7
	switch op := i.op; {
	case op&0xf8 == 0x50:
		f.pushX86(i.rm)
	case op == 0x68 || op == 0x6a || op == 0xff && group == 6:
		f.next.depth += 8
	case op&0xf8 == 0x58:
		return f, f.popX86(i.rm)
	case op == 0xc9: // leave
		if s.frame == 0 {
			return f, false
		}
		f.next.depth = s.frame
		return f, f.popX86(x86RBP)
	case i.addsToStack() && op != 0x8d:
		return f, f.addX86(code, op, group)
	case op == 0x89 && string(code) == "\x48\x89\xe5", op == 0x8b && string(code) == "\x48\x8b\xec": // mov %rsp, %rbp
		f.next.frame = s.depth
		return f, s.saved[1] != 0
	case op == 0xc3:
		f.returns, f.on = true, false
	case op == 0xcc || op == 0xf4: // int3, hlt
		f.on = false
	case op&0xf0 == 0x70:
		f.jumpsBy(code, 1)
	case op == 0xeb:
		f.jumpsBy(code, 1)
		f.on = false
	case op == 0xe9:
		f.jumpsBy(code, 4)
		f.on = false
	case op == 0xff && group == 4: // through a register or memory, so to another function
		f.on = false
		return f, s == followedEntryX86
	case op == 0xe8:
		return f, binary.LittleEndian.Uint32(code[i.size-4:]) != 0 // that pushes the address of what follows
	case op == 0xff && group == 2:
	case op >= 0x9a && op <= 0x9d, op == 0x8f, op >= 0xc8 && op <= 0xcf, op == 0xc2, op >= 0xe0 && op <= 0xe3, op == 0xff && group > 2:
		return f, false // far calls, flags, loops, traps
	default:
		return f, f.keepsX86(&i)
	}
	return f, f.next.depth <= mostFollowed
}

// jumpsBy notes a jump by the number at the end of an instruction.
func (f *followedStep) jumpsBy(code []byte, bytes int) {
	n := int32(int8(code[len(code)-1]))
	if bytes == 4 {
		n = int32(binary.LittleEndian.Uint32(code[len(code)-4:]))
	}
	f.jumps, f.target = true, len(code)+int(n)
}

// pushX86 notes where a register is saved that functions preserve.
func (f *followedStep) pushX86(reg byte) {
	f.next.depth += 8
	if place, ok := placesX86[reg]; ok && f.next.saved[place] == 0 {
		f.next.saved[place] = f.next.depth
	}
}

// popX86 reports whether a register may be popped: one that was saved there, or one that
// functions need not preserve.
func (f *followedStep) popX86(reg byte) bool {
	s := &f.next
	place, preserved := placesX86[reg]
	for i, depth := range s.saved {
		if depth == s.depth && !(preserved && i == place) {
			return false // it would be lost
		}
	}
	if preserved {
		if s.saved[place] != s.depth {
			return false
		}
		s.saved[place] = 0
		if reg == x86RBP {
			s.frame = 0
		}
	}
	s.depth -= 8
	return reg != x86RSP && s.depth >= 8
}

// addX86 reports whether a constant may be added to the stack pointer: that gives up
// nothing that was saved.
func (f *followedStep) addX86(code []byte, op, group byte) bool {
	n := int32(int8(code[len(code)-1]))
	if op == 0x81 {
		n = int32(binary.LittleEndian.Uint32(code[len(code)-4:]))
	}
	if group == 0 {
		n = -n
	}
	if n%8 != 0 || n > mostFollowed || n < -mostFollowed {
		return false
	}
	s := &f.next
	s.depth += n
	for _, depth := range s.saved {
		if depth > s.depth {
			return false
		}
	}
	return s.depth >= 8 && s.depth <= mostFollowed
}

// keepsX86 reports whether an instruction leaves the stack pointer, the registers that
// functions preserve unless they were saved, and the return address alone.
func (f *followedStep) keepsX86(i *x86Instruction) bool {
	s := &f.next
	if i.writes(x86RSP) || i.has && i.modrm>>6 != 3 && i.modrm&7 == 4 && i.base&7 == 4 && s.depth == 8 {
		return false
	}
	for reg, place := range placesX86 {
		if !i.writes(reg) {
			continue
		}
		if s.saved[place] == 0 {
			return false
		}
		if reg == x86RBP {
			s.frame = 0
		}
	}
	return true
}
