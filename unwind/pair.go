package unwind

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
