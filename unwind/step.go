package unwind

import "hallmark/addr"

// State is where a frame stands.
type State struct {
	IP addr.Abs
	// Exact says that execution stands at IP: in the innermost frame, and in one that
	// a signal interrupted. Else IP is a return address, and the call is before it.
	Exact  bool
	Method Method // how the frame was found
	Registers
	bits uint8 // of addresses of programs: Walker.AddressBits
}

// Lookup returns the address that says where the frame is in its code: that of the
// instruction which is executed, or of the last byte of the call.
func (s *State) Lookup() addr.Abs {
	if s.Exact {
		return s.IP
	}
	return s.IP - 1
}

// Step goes to the caller of a frame whose code has this rule. When there is none, or
// none that is sure, it returns how the stack ends, and the state is of no use any more.
// Rules of kind None and FP are followed by [State.StepFP], which is for whoever knows
// what lies where: here they are an end.
func (s *State) Step(m Machine, r *Rule, mem Memory) (End, bool) {
	switch r.Kind {
	case Outermost:
		return Complete, true
	case Reg, Deref, PLT:
		return s.stepCall(m, r, mem)
	case Signal:
		return s.stepSignal(m, r, mem)
	case Goroutine:
		return s.stepGoroutine(m, r, mem)
	}
	return r.end(), true
}

// end returns how a stack ends where the rule says nothing.
func (r *Rule) end() End {
	if r.Kind == None && r.Silence() == Gap || r.Kind == FP {
		return NoRule
	}
	return Unsupported
}

// stepCall goes to the caller of a function.
func (s *State) stepCall(m Machine, r *Rule, mem Memory) (End, bool) {
	cfa, base, end := s.frame(m, r, mem)
	if end != EndUnknown {
		return end, true
	}
	if r.Flags&OtherStack == 0 && !s.above(m, cfa) {
		return BadFrame, true
	}
	saved, end := s.savedFrom(m, r, base, cfa)
	if end != EndUnknown {
		return end, true
	}
	ra, end := s.returnAddress(r, mem, r.from(ReturnAtRegister, base, cfa))
	if end != EndUnknown {
		return end, true
	}
	if saved != 0 {
		s.restore(m, r, mem, saved)
	}
	s.Set(m.StackPointer(), cfa)
	if m == ARM64 {
		s.Lose(X30) // the call has written it
	}
	end, ended := s.enter(m, ra, ByCFI)
	s.Exact = r.Flags&Interrupted != 0
	return end, ended
}

// frame returns the canonical frame address, and the value of the register that it was
// found from.
func (s *State) frame(m Machine, r *Rule, mem Memory) (cfa, base uint64, end End) {
	from := r.Register
	if r.Kind == PLT {
		from = m.StackPointer()
	}
	base, known := s.Get(from)
	if !known {
		return 0, 0, RegisterLost
	}
	switch r.Kind {
	case PLT:
		cfa = base + 8
		if int32(s.IP&15) >= r.Offset {
			cfa += 8 // the entry has pushed its number
		}
	case Deref:
		at, ok := mem.ReadWord(addr.Abs(base + uint64(int64(r.Offset))))
		if !ok {
			return 0, 0, Unreadable
		}
		cfa = at + 8*uint64(int64(r.Addend))
	default:
		cfa = base + uint64(int64(r.Offset))
	}
	return cfa, base, EndUnknown
}

// above reports whether a caller whose stack is at cfa can be the one of s: calls go
// down the stack, but what has not pushed anything yet is where its caller is.
func (s *State) above(m Machine, cfa uint64) bool {
	sp, known := s.Get(m.StackPointer())
	return known && (cfa > sp || s.Exact && cfa == sp)
}

func (s *State) returnAddress(r *Rule, mem Memory, base uint64) (uint64, End) {
	if r.RA == Same {
		ra, known := s.Get(r.Link)
		if !known {
			return 0, RegisterLost
		}
		return ra, EndUnknown
	}
	if r.RA == Unknown {
		return 0, RegisterLost
	}
	ra, ok := mem.ReadWord(slot(base, r.RA))
	if !ok {
		return 0, Unreadable
	}
	return ra, EndUnknown
}

// slot returns the address of a word, by its distance from base.
func slot(base uint64, words int8) addr.Abs { return addr.Abs(base + 8*uint64(int64(words))) }

// from returns what places in a rule are relative to: the value of its register if a flag
// says so, else the CFA.
func (r *Rule) from(flag uint8, register, cfa uint64) uint64 {
	if r.Flags&flag != 0 {
		return register
	}
	return cfa
}

// savedFrom returns what the places of saved registers are relative to, 0 if they are
// unchanged after all, because the frame pointer is the caller's again.
func (s *State) savedFrom(m Machine, r *Rule, register, cfa uint64) (uint64, End) {
	if r.Flags&SavedAtFramePointer == 0 {
		return r.from(SavedAtRegister, register, cfa), EndUnknown
	}
	fp, known := s.Get(m.FramePointer())
	sp, there := s.Get(m.StackPointer())
	switch {
	case !known || !there:
		return 0, RegisterLost
	case fp < sp || fp >= cfa:
		return 0, EndUnknown
	}
	return fp, EndUnknown
}

// restore gives the registers that functions preserve the values that they have in the
// caller. Where a function has taken one from the stack already, its call frame information
// may still say that it is there, below the stack pointer, and a copy of the stack need not
// have that: then it is lost, which matters if a caller's frame is found from it. The other
// registers keep their values, though most calls change them: only assembler that knows of a
// callee that does not has its frame at one of them.
func (s *State) restore(m Machine, r *Rule, mem Memory, base uint64) {
	for i, n := range m.Saved() {
		at := r.Saved[i]
		if at == Same {
			continue
		}
		v, ok := uint64(0), false
		if at != Unknown {
			v, ok = mem.ReadWord(slot(base, at))
		}
		if ok {
			s.Set(n, v)
		} else {
			s.Lose(n)
		}
	}
}

// enter makes a return address the place of s. Nothing is where stacks begin, neither an
// address to return to nor a frame pointer (System V ABI, "The Stack Frame"); with a frame
// pointer, a return address of 0 is what something else left there.
func (s *State) enter(m Machine, ra uint64, by Method) (End, bool) {
	s.IP, s.Exact, s.Method = m.code(ra, s.bits), false, by
	if s.IP != 0 {
		return EndUnknown, false
	}
	if fp, known := s.Get(m.FramePointer()); !known || fp != 0 {
		return BadFrame, true
	}
	return Complete, true
}

// code returns the address that a return address stands for. arm64 signs them in the
// bits above those that addresses of programs have, 48 if that is not reported.
func (m Machine) code(ra uint64, bits uint8) addr.Abs {
	if bits == 0 {
		bits = 48
	}
	if m == ARM64 && ra&(1<<55) == 0 {
		ra &= 1<<bits - 1
	}
	return addr.Abs(ra)
}

// StepFP goes to the caller of a frame whose code keeps frame pointers: a frame pointer
// points to that of the caller, with the return address behind it.
func (s *State) StepFP(m Machine, mem Memory) (End, bool) {
	sp, known := s.Get(m.StackPointer())
	fp, kept := s.Get(m.FramePointer())
	switch {
	case !known || !kept:
		return RegisterLost, true
	case fp == 0:
		return Complete, true
	case fp < sp || fp%8 != 0:
		return BadFrame, true
	}
	ra, ok := mem.ReadWord(addr.Abs(fp + 8))
	if !ok {
		return Unreadable, true
	}
	caller, ok := mem.ReadWord(addr.Abs(fp))
	if !ok {
		return Unreadable, true
	}
	s.Known = 0
	s.Set(m.FramePointer(), caller)
	s.Set(m.StackPointer(), fp+16)
	return s.enter(m, ra, ByFP)
}
