package unwind

import "math"

// Call frame instructions (DWARF 5 section 7.24, and the extensions of GNU, MIPS and Arm).
const (
	cfaAdvanceLoc = 0x40 // the upper two bits
	cfaOffset     = 0x80
	cfaRestore    = 0xc0

	cfaNop                    = 0x00
	cfaSetLoc                 = 0x01
	cfaAdvanceLoc1            = 0x02
	cfaAdvanceLoc2            = 0x03
	cfaAdvanceLoc4            = 0x04
	cfaOffsetExtended         = 0x05
	cfaRestoreExtended        = 0x06
	cfaUndefined              = 0x07
	cfaSameValue              = 0x08
	cfaRegister               = 0x09
	cfaRememberState          = 0x0a
	cfaRestoreState           = 0x0b
	cfaDefCFA                 = 0x0c
	cfaDefCFARegister         = 0x0d
	cfaDefCFAOffset           = 0x0e
	cfaDefCFAExpression       = 0x0f
	cfaExpression             = 0x10
	cfaOffsetExtendedSF       = 0x11
	cfaDefCFASF               = 0x12
	cfaDefCFAOffsetSF         = 0x13
	cfaValOffset              = 0x14
	cfaValOffsetSF            = 0x15
	cfaValExpression          = 0x16
	cfaMIPSAdvanceLoc8        = 0x1d
	cfaNegateRAStateWithPC    = 0x2c
	cfaNegateRAState          = 0x2d // on SPARC: GNU_window_save
	cfaGNUArgsSize            = 0x2e
	cfaGNUNegativeOffsetExtSF = 0x2f
)

// placeKind is how a register's value in the caller is found.
type placeKind uint8

const (
	placeSame       placeKind = iota // it is unchanged
	placeUndefined                   // it is lost
	placeAt                          // it lies at CFA + n
	placeValue                       // it is CFA + n
	placeIn                          // it is in another register
	placeAtRegister                  // it lies at a register + n
	placeOther                       // no rule can say it
)

// place is where a register's value in the caller is.
type place struct {
	kind     placeKind
	register uint8
	n        int32
}

// frameState is a row while it is being made: how the CFA is found and where the
// registers are, by slot.
type frameState struct {
	cfa    cfaRule
	offset int64 // of the last CFA that was a register and an offset, see executor.define
	places [slots]place
}

// cfaRule is how the CFA is found.
type cfaRule struct {
	kind     Kind // None: no rule can say it, or nothing is said
	why      Silence
	register uint8
	offset   int64
	addend   int64 // bytes
	isFixed  bool  // an expression, whose offset no instruction changes
}

// The slots of registers that matter: those that functions must preserve in the order of
// Machine.Saved, the return address and the stack pointer. noSlot takes all others.
const (
	slotRA = 6
	slotSP = 7
	noSlot = 8
	slots  = 9
)

// maxRemembered is how many states a function may remember at a time.
const maxRemembered = 256

// executor runs call frame instructions. It is used by one goroutine.
type executor struct {
	machine    Machine
	slotOf     [256]uint8
	remembered []frameState

	section    *cfiSection
	part       *part
	source     Source
	fileOffset uint64 // of virtual address 0, from the layer's base

	state    frameState
	changed  bool   // state, since rule was made
	moved    bool   // registers to other places, since rule was made
	made     Rule   // the last rule
	relative bool   // made depends on what the CFA is in more than Register and Offset
	rule     uint32 // its number
}

func newExecutor(m Machine) *executor {
	x := &executor{machine: m}
	for i := range x.slotOf {
		x.slotOf[i] = noSlot
	}
	for i, r := range m.Saved() {
		x.slotOf[r] = uint8(i)
	}
	x.slotOf[m.returnColumn()] = slotRA
	x.slotOf[m.StackPointer()] = slotSP
	return x
}

// returnColumn returns the column that stands for the return address.
func (m Machine) returnColumn() Register {
	if m == ARM64 {
		return X30
	}
	return 16
}

func (x *executor) slot(register uint64) *place {
	if register > 255 {
		return &x.state.places[noSlot]
	}
	return &x.state.places[x.slotOf[register]]
}

// initial runs the instructions of a common entry.
func (x *executor) initial(e *cie, code []byte) error {
	x.state, x.section = frameState{}, nil
	ok := x.execute(e, reader{b: code}, 0, 0)
	e.initial = x.state
	if !ok {
		return errMalformed
	}
	return nil
}

// run makes the rows of a function from its instructions, and reports whether they are
// well-formed.
func (x *executor) run(e *cie, r reader, start, end uint64) bool {
	x.state, x.changed, x.moved = e.initial, true, true
	return x.execute(e, r, start, end)
}

// hold says that the state holds from start up to end.
func (x *executor) hold(e *cie, start, end uint64) {
	if start >= end {
		return
	}
	if x.changed {
		if x.moved || !x.sameBut() {
			x.made = x.makeRule(e)
			x.made.Flags |= uint8(x.source) << sourceShift
		}
		x.rule = x.part.rules.number(x.made.pack())
		x.changed, x.moved = false, false
	}
	x.part.put(uint32(start+x.fileOffset), x.rule)
}

// execute runs instructions. Without a section they are those of a common entry.
func (x *executor) execute(e *cie, r reader, at, end uint64) bool {
	x.remembered = x.remembered[:0]
	for r.more() {
		op := r.u8()
		low := uint64(op & 0x3f)
		switch op & 0xc0 {
		case cfaAdvanceLoc:
			at = x.advance(e, at, low, end)
			continue
		case cfaOffset:
			x.setOffset(low, e, int64(r.unsigned()))
			continue
		case cfaRestore:
			*x.slot(low) = e.initial.places[x.slotIndex(low)]
			x.changed, x.moved = true, true
			continue
		}
		switch op {
		case cfaNop:
		case cfaSetLoc:
			to := x.location(e, &r)
			if to < at {
				return false
			}
			x.hold(e, at, min(to, end))
			at = to
		case cfaAdvanceLoc1:
			at = x.advance(e, at, uint64(r.u8()), end)
		case cfaAdvanceLoc2:
			at = x.advance(e, at, uint64(r.u16()), end)
		case cfaAdvanceLoc4:
			at = x.advance(e, at, uint64(r.u32()), end)
		case cfaMIPSAdvanceLoc8:
			at = x.advance(e, at, r.u64(), end)
		case cfaNegateRAState, cfaNegateRAStateWithPC: // who reads a return address takes the signature off
			if x.machine != ARM64 {
				return false
			}
		case cfaGNUArgsSize:
			r.unsigned()
		default:
			x.changed = true
			if !x.define(op, e, &r) {
				return false
			}
		}
	}
	if r.bad {
		return false
	}
	x.hold(e, at, end)
	return true
}

// advance moves on by a number of units.
func (x *executor) advance(e *cie, at, units, end uint64) uint64 {
	to := at + units*e.codeAlign
	if to < at || units != 0 && e.codeAlign > math.MaxUint32 {
		to = math.MaxUint64
	}
	x.hold(e, at, min(to, end))
	return to
}

// location reads the operand of DW_CFA_set_loc.
func (x *executor) location(e *cie, r *reader) uint64 {
	if x.section == nil {
		r.bad = true
		return 0
	}
	_, to := r.address(x.section.virt, e.encoding)
	return to
}

// define runs an instruction that changes the state.
func (x *executor) define(op uint8, e *cie, r *reader) bool {
	switch op {
	case cfaRememberState:
		if len(x.remembered) == maxRemembered {
			return false
		}
		x.remembered = append(x.remembered, x.state)
	case cfaRestoreState:
		n := len(x.remembered)
		if n == 0 {
			return false
		}
		x.state, x.remembered = x.remembered[n-1], x.remembered[:n-1]
		x.moved = true
	case cfaDefCFA:
		x.defCFA(r.unsigned(), int64(r.unsigned()))
	case cfaDefCFASF:
		x.defCFA(r.unsigned(), r.signed()*e.dataAlign)
	case cfaDefCFARegister:
		// Behind an expression DWARF does not know it; the C++ runtime and gdb take the offset
		// from before the expression, and assembly in libgcrypt relies on that.
		x.defCFA(r.unsigned(), x.state.offset)
	case cfaDefCFAOffset:
		x.defOffset(int64(r.unsigned()))
	case cfaDefCFAOffsetSF:
		x.defOffset(r.signed() * e.dataAlign)
	case cfaDefCFAExpression:
		x.state.cfa = cfaOf(x.machine, r.take(r.unsigned()))
		x.state.cfa.isFixed = true
	default:
		return x.defineRegister(op, e, r)
	}
	return true
}

func (x *executor) defCFA(register uint64, offset int64) {
	x.state.cfa, x.state.offset = cfaRule{why: Unusual}, offset
	if register < uint64(x.machine.registers()) {
		x.state.cfa = cfaRule{kind: Reg, register: uint8(register), offset: offset}
	}
}

// registers returns how many registers have a value that a walk may know.
func (m Machine) registers() int {
	if m == ARM64 {
		return 32
	}
	return 16
}

// defOffset changes the offset only: where the CFA is an expression, it stays one.
func (x *executor) defOffset(offset int64) {
	x.state.offset = offset
	if !x.state.cfa.isFixed {
		x.state.cfa.offset = offset
	}
}

// defineRegister runs an instruction that says where a register is.
func (x *executor) defineRegister(op uint8, e *cie, r *reader) bool {
	register := r.unsigned()
	x.moved = true
	switch op {
	case cfaOffsetExtended:
		x.setOffset(register, e, int64(r.unsigned()))
	case cfaOffsetExtendedSF:
		x.setOffset(register, e, r.signed())
	case cfaGNUNegativeOffsetExtSF:
		x.setOffset(register, e, -int64(r.unsigned()))
	case cfaRestoreExtended:
		*x.slot(register) = e.initial.places[x.slotIndex(register)]
	case cfaUndefined:
		*x.slot(register) = place{kind: placeUndefined}
	case cfaSameValue:
		*x.slot(register) = place{kind: placeSame}
	case cfaRegister:
		*x.slot(register) = placeInRegister(register, r.unsigned())
	case cfaValOffset:
		*x.slot(register) = placeWith(placeValue, 0, int64(r.unsigned())*e.dataAlign)
	case cfaValOffsetSF:
		*x.slot(register) = placeWith(placeValue, 0, r.signed()*e.dataAlign)
	case cfaExpression:
		*x.slot(register) = placeOf(r.take(r.unsigned()), placeAt)
	case cfaValExpression:
		*x.slot(register) = placeOf(r.take(r.unsigned()), placeValue)
	default:
		return false
	}
	return true
}

func (x *executor) slotIndex(register uint64) uint8 {
	if register > 255 {
		return noSlot
	}
	return x.slotOf[register]
}

func (x *executor) setOffset(register uint64, e *cie, n int64) {
	*x.slot(register) = placeWith(placeAt, 0, n*e.dataAlign)
	x.changed, x.moved = true, true
}

// placeWith returns a place, if its number fits.
func placeWith(kind placeKind, register uint8, n int64) place {
	if n != int64(int32(n)) {
		return place{kind: placeOther}
	}
	return place{kind, register, int32(n)}
}

func placeInRegister(register, other uint64) place {
	switch {
	case register == other:
		return place{kind: placeSame}
	case other > 255:
		return place{kind: placeOther}
	}
	return place{kind: placeIn, register: uint8(other)}
}
