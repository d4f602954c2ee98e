package unwind

import "encoding/binary"

// followedRuleARM64 is the rule of a place that was followed.
func followedRuleARM64(s followedState) Rule {
	r := Rule{Kind: Reg, Register: SP, Offset: s.depth, RA: Same, Link: X30, Saved: [6]int8{Same}}
	if s.link != 0 {
		r.RA, r.Saved[0] = int8(-s.link/8), int8(-s.saved[0]/8)
	}
	return r
}

// Instructions that begin and end frames.
const (
	armPush   = 0xa9807bfd // stp x29, x30, [sp, #-N]!
	armPop    = 0xa8c07bfd // ldp x29, x30, [sp], #N
	armMovFP  = 0x910003fd // mov x29, sp
	armReturn = 0xd65f03c0
)

// followARM64 says what the first instruction of code does to the stack.
func followARM64(code []byte, s followedState) (followedStep, bool) {
	if len(code) < 4 {
		return followedStep{}, false
	}
	w := binary.LittleEndian.Uint32(code)
	f := followedStep{size: 4, next: s, on: true}
	switch {
	case w&armPairMask == armPush:
		n := -8 * (int32(w<<10) >> 25)
		if s.depth != 0 || n < 16 || n > mostFollowed {
			return f, false
		}
		f.next = followedState{depth: n, link: n - 8, saved: [6]int32{n}}
	case w&armPairMask == armPop:
		f.next = followedState{}
		return f, s.link != 0 && 8*(int32(w<<10)>>25) == s.depth
	case w == armMovFP:
		return f, s.link != 0
	case w == armReturn:
		f.returns, f.on = true, false
	case w>>26 == 0x05: // b
		f.jumps, f.target, f.on = true, int(int32(w<<6)>>6)*4, false
	case w>>26 == 0x25, w>>10 == 0xd63f0000>>10: // bl, blr
		return f, s.link != 0
	case w>>25 == 0x2a, w>>25&0x3f == 0x1a: // b.cond, cbz, cbnz
		f.jumps, f.target = true, int(int32(w<<8)>>13)*4
	case w>>25&0x3f == 0x1b: // tbz, tbnz
		f.jumps, f.target = true, int(int32(w<<13)>>18)*4
	case w>>10 == 0xd61f0000>>10: // br
		f.on = false
		return f, s == followedState{}
	case w>>26 == 0x35: // other branches, system calls and registers: hints only
		return f, w>>12 == 0xd503201f>>12
	default:
		return f, !writesSP(w) && (s.link != 0 || !writesLink(w) && !writesFP(w))
	}
	return f, true
}
