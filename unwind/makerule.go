package unwind

// makeRule says the state as a rule.
func (x *executor) makeRule(e *cie) Rule {
	s := &x.state
	none := func(w Silence) Rule { return Rule{Kind: None, Register: Register(w)} }
	switch {
	case e.ra != uint64(x.machine.returnColumn()):
		return none(Unusual)
	case e.signal:
		return x.signalRule()
	case s.places[slotRA].kind == placeUndefined:
		return Rule{Kind: Outermost}
	case s.cfa == cfaRule{}:
		return none(Damaged) // nobody said what the CFA is
	case s.cfa.kind == None:
		return none(s.cfa.why)
	case !s.restoresSP() || x.machine == ARM64 && s.cfa.register < 8:
		return none(Unusual) // to another stack: setcontext, longjmp, whose argument is the CFA on arm64
	}
	r := Rule{Kind: s.cfa.kind, Register: Register(s.cfa.register), Offset: int32(s.cfa.offset), Addend: int8(s.cfa.addend / 8)}
	if int64(r.Offset) != s.cfa.offset || int64(r.Addend)*8 != s.cfa.addend {
		return none(Unusual)
	}
	if x.machine == ARM64 {
		if !x.pair(&r) {
			return none(Unusual)
		}
		return r
	}
	if !x.returnAddress(&r) {
		return none(Unusual)
	}
	x.savedRegisters(&r)
	return r
}

// sameBut changes the last rule to the state's if all that is different is how the CFA is
// found, as after most instructions, and reports whether that was possible. It is for
// x86-64 only, where what a rule says of registers depends on no more of the CFA.
func (x *executor) sameBut() bool {
	cfa := &x.state.cfa
	if x.machine != X86_64 || x.made.Kind != Reg || cfa.kind != Reg || x.relative || cfa.offset != int64(int32(cfa.offset)) {
		return false
	}
	x.made.Register, x.made.Offset = Register(cfa.register), int32(cfa.offset)
	return true
}

// restoresSP reports whether the caller's stack pointer is the CFA.
func (s *frameState) restoresSP() bool {
	p := s.places[slotSP]
	return p.kind == placeSame || p.kind == placeValue && p.n == 0
}

// fromCFA returns a place relative to the CFA if it is relative to the register that the
// CFA is.
func (s *frameState) fromCFA(p place) place {
	if p.kind == placeAtRegister && s.cfa.kind == Reg && p.register == s.cfa.register {
		return placeWith(placeAt, 0, int64(p.n)-s.cfa.offset)
	}
	return p
}

// returnAddress puts into a rule where the return address is.
func (x *executor) returnAddress(r *Rule) bool {
	switch p := x.state.fromCFA(x.state.places[slotRA]); p.kind {
	case placeAt:
		n, ok := words(p.n)
		r.RA = n
		return ok
	case placeIn:
		r.RA, r.Link = Same, Register(p.register)
		return int(p.register) < x.machine.registers()
	}
	return false
}

// words returns a number of bytes in units of 8, if a rule can have it.
func words(n int32) (int8, bool) {
	if n%8 != 0 || n/8 <= int32(Same) || n/8 >= int32(Unknown) {
		return Unknown, false
	}
	return int8(n / 8), true
}

// savedRegisters puts into a rule where the registers are that functions preserve. What
// cannot be said of one is a register lost, not the frame. Of a machine with fewer of
// them the others are 0, so that they do not make rules differ.
func (x *executor) savedRegisters(r *Rule) {
	n := len(x.machine.Saved())
	x.relative = false
	for i := range n {
		switch p := &x.state.places[i]; p.kind {
		case placeSame:
			r.Saved[i] = Same
		case placeAt:
			r.Saved[i], _ = words(p.n)
		default:
			r.Saved[i] = Unknown
			x.relative = x.relative || p.kind == placeAtRegister
		}
	}
	x.relative = x.relative || x.state.places[slotRA].kind == placeAtRegister
	if !x.relative {
		return
	}
	from := x.savedFrom(n)
	switch {
	case from.kind == placeAt:
	case from.register == x.state.cfa.register:
		r.Flags |= SavedAtRegister
	default:
		r.Flags |= SavedAtFramePointer
	}
	for i := range n {
		r.Saved[i] = x.saved(i, from)
	}
}

// savedFrom returns what the places of saved registers are relative to: a place at the
// CFA, or one at the register that the CFA is found from or at the frame pointer. Where they
// differ, the frame pointer's decides: most functions find their frames from it.
func (x *executor) savedFrom(n int) place {
	from := place{kind: placeAt}
	framePointer := x.machine.framePointer()
	for i := range n {
		p := x.state.fromCFA(x.state.places[i])
		sayable := p.kind == placeAtRegister && (p.register == x.state.cfa.register || p.register == uint8(x.machine.FramePointer()))
		if i == framePointer && (sayable || p.kind == placeAt) {
			return p
		}
		if sayable && from.kind == placeAt {
			from = p
		}
	}
	return from
}

// framePointer returns which of Machine.Saved the frame pointer is.
func (m Machine) framePointer() int {
	if m == X86_64 {
		return 1
	}
	return 0
}

// saved returns how far a register's place is from where those of the rule count from.
func (x *executor) saved(i int, from place) int8 {
	p := x.state.fromCFA(x.state.places[i])
	switch {
	case p.kind == placeSame:
		return Same
	case p.kind != from.kind || p.register != from.register:
		return Unknown
	}
	n, _ := words(p.n)
	return n
}

// Where Linux puts registers for a signal's handler, from the stack pointer on at the
// instructions that the handler returns to: x86-64 is at a struct ucontext there, whose
// registers begin with r8 (arch/x86/include/uapi/asm/sigcontext.h).
const (
	signalRSP = 160
	signalRIP = 168
)

var signalSavedX86 = [...]int32{128, 120, 72, 80, 88, 96} // in the order of Machine.Saved

// signalRule is the rule for the code that a signal's handler returns to, if what it says
// is the kernel's layout.
func (x *executor) signalRule() Rule {
	s := &x.state
	unusual := Rule{Kind: None, Register: Register(Unusual)}
	if x.machine == ARM64 {
		// What the vdso says (CFA x29, x29 and x30 there) is for walks by frame pointers: it
		// leads to the caller of the function that was interrupted. The registers are all in
		// the frame, whatever it says.
		if s.cfa != (cfaRule{kind: Reg, register: uint8(X29)}) {
			return unusual
		}
		return Rule{Kind: Signal, Register: SP}
	}
	if s.cfa.kind != Deref || s.cfa.register != uint8(RSP) || s.cfa.addend != 0 {
		return unusual
	}
	offset := s.cfa.offset - signalRSP
	at := func(p place, n int32) bool {
		return p.kind == placeAtRegister && p.register == uint8(RSP) && int64(p.n) == offset+int64(n)
	}
	for i, n := range signalSavedX86 {
		if !at(s.places[i], n) {
			return unusual
		}
	}
	if !at(s.places[slotRA], signalRIP) || offset != int64(int32(offset)) {
		return unusual
	}
	return Rule{Kind: Signal, Register: RSP, Offset: int32(offset)}
}

// pair puts into a rule for arm64 where the return address and the frame pointer are,
// the two registers of a frame record. Some compilers have it at the low end of frames
// of any size: what is too far from the CFA is said relative to the register that the CFA
// is found from, for both. It reports whether the return address could be said.
func (x *executor) pair(r *Rule) bool {
	ra, fp := x.state.fromCFA(x.state.places[slotRA]), x.state.fromCFA(x.state.places[0])
	switch ra.kind {
	case placeSame: // in the register that calls leave it in
		r.RA, r.Link = Same, X30
	case placeIn:
		r.RA, r.Link = Same, Register(ra.register)
		if int(ra.register) >= x.machine.registers() {
			return false
		}
	default:
		n, ok := x.distance(ra, false)
		if !ok {
			r.Flags |= SavedAtRegister | ReturnAtRegister
			if n, ok = x.distance(ra, true); !ok {
				return false
			}
		}
		r.RA = n
	}
	if fp.kind == placeSame {
		r.Saved[0] = Same
		return true
	}
	n, ok := x.distance(fp, r.Flags&SavedAtRegister != 0)
	if !ok && r.RA == Same { // nothing else depends on the flag
		if n, ok = x.distance(fp, true); ok {
			r.Flags |= SavedAtRegister
		}
	}
	r.Saved[0] = n
	return true
}

// distance returns how far a place is from the CFA, or from the register that the CFA is
// found from, in units of 8 bytes, if a rule can have it; otherwise Unknown.
func (x *executor) distance(p place, fromRegister bool) (int8, bool) {
	cfa := &x.state.cfa
	switch {
	case p.kind == placeAt && !fromRegister:
		return words(p.n)
	case p.kind == placeAt && cfa.kind == Reg:
		if n := int64(p.n) + cfa.offset; n == int64(int32(n)) {
			return words(int32(n))
		}
	case p.kind == placeAtRegister && fromRegister && p.register == cfa.register:
		return words(p.n)
	}
	return Unknown, false
}
