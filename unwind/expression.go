package unwind

// Operations of DWARF expressions that call frame information has (DWARF 5 section 7.7.1).
const (
	opDeref      = 0x06
	opConst1U    = 0x08
	opConst1S    = 0x09
	opConst2U    = 0x0a
	opConst2S    = 0x0b
	opConst4U    = 0x0c
	opConst4S    = 0x0d
	opConst8U    = 0x0e
	opConst8S    = 0x0f
	opConstU     = 0x10
	opConstS     = 0x11
	opAnd        = 0x1a
	opMinus      = 0x1c
	opPlus       = 0x22
	opPlusUConst = 0x23
	opShl        = 0x24
	opGE         = 0x2a
	opLit0       = 0x30
	opBReg0      = 0x70
	opBRegX      = 0x92
	opNop        = 0x96
)

// A term is what an expression's value can be in a rule: a number, a register or the CFA
// and a number, or what lies there and a number.
type term struct {
	kind     termKind
	register uint8
	n        int64 // added to the register
	addend   int64 // added to what lies there
}

type termKind uint8

const (
	termOther termKind = iota
	termNumber
	termRegister
	termCFA
	termDeref // of a register
)

// pltExpression is what linkers write for their stubs of 16 bytes: two pushes behind
// the call, of which the second lies at the end of the stub. Its tenth byte is where.
var pltExpression = [...]byte{opBReg0 + 7, 8, opBReg0 + 16, 0, opLit0 + 15, opAnd, opLit0, opGE, opLit0 + 3, opShl, opPlus}

// cfaOf returns the rule of an expression for the CFA.
func cfaOf(m Machine, code []byte) cfaRule {
	if n, ok := pltOf(code); ok && m == X86_64 {
		return cfaRule{kind: PLT, register: uint8(RSP), offset: n}
	}
	switch t := evaluate(code, false); {
	case t.register >= uint8(m.registers()):
	case t.kind == termRegister:
		return cfaRule{kind: Reg, register: t.register, offset: t.n}
	case t.kind == termDeref:
		return cfaRule{kind: Deref, register: t.register, offset: t.n, addend: t.addend}
	}
	return cfaRule{why: Expression}
}

// pltOf returns from where on in an entry of 16 bytes there is one word more on the stack.
func pltOf(code []byte) (int64, bool) {
	const at = 6
	if len(code) != len(pltExpression) || code[at] < opLit0 || code[at] > opLit0+15 {
		return 0, false
	}
	for i, b := range pltExpression {
		if i != at && code[i] != b {
			return 0, false
		}
	}
	return int64(code[at] - opLit0), true
}

// placeOf returns the place of an expression for a register: where it lies (placeAt) or
// what it is (placeValue).
func placeOf(code []byte, kind placeKind) place {
	switch t := evaluate(code, true); {
	case t.kind == termCFA:
		return placeWith(kind, 0, t.n)
	case t.kind == termRegister && kind == placeAt:
		return placeWith(placeAtRegister, t.register, t.n)
	}
	return place{kind: placeOther}
}

// evaluate returns what an expression amounts to, termOther if it is nothing that rules
// can say. The stack begins with the CFA if the
// expression is for a register.
func evaluate(code []byte, forRegister bool) term {
	var stack [8]term
	n := 0
	if forRegister {
		stack[0], n = term{kind: termCFA}, 1
	}
	r := reader{b: code}
	for r.more() {
		if n == len(stack) {
			return term{}
		}
		op := r.u8()
		if t, ok := push(op, &r); ok {
			stack[n] = t
			n++
			continue
		}
		if n = combine(op, &r, stack[:n]); n == 0 {
			return term{}
		}
	}
	if n == 0 || r.bad {
		return term{}
	}
	return stack[n-1]
}

// push returns the value that an operation puts on the stack, if it does.
func push(op uint8, r *reader) (term, bool) {
	number := func(n int64) (term, bool) { return term{kind: termNumber, n: n}, true }
	switch {
	case op >= opLit0 && op < opLit0+32:
		return number(int64(op - opLit0))
	case op >= opBReg0 && op < opBReg0+32:
		return term{kind: termRegister, register: op - opBReg0, n: r.signed()}, true
	}
	switch op {
	case opConst1U:
		return number(int64(r.u8()))
	case opConst1S:
		return number(int64(int8(r.u8())))
	case opConst2U:
		return number(int64(r.u16()))
	case opConst2S:
		return number(int64(int16(r.u16())))
	case opConst4U:
		return number(int64(r.u32()))
	case opConst4S:
		return number(int64(int32(r.u32())))
	case opConst8U, opConst8S:
		return number(int64(r.u64()))
	case opConstU:
		return number(int64(r.unsigned()))
	case opConstS:
		return number(r.signed())
	case opBRegX:
		register := r.unsigned()
		t := term{kind: termRegister, register: uint8(min(register, 255)), n: r.signed()}
		return t, true
	}
	return term{}, false
}

// combine runs an operation on what is on the stack and returns how many values are on
// it then, 0 if rules cannot say what becomes of it.
func combine(op uint8, r *reader, stack []term) int {
	n := len(stack)
	if n == 0 {
		return 0
	}
	top := &stack[n-1]
	switch op {
	case opNop:
		return n
	case opPlusUConst:
		return top.plus(int64(r.unsigned()), n)
	case opDeref:
		if top.kind != termRegister {
			return 0
		}
		top.kind = termDeref
		return n
	case opPlus, opMinus:
		if n < 2 {
			return 0
		}
		return sum(op, &stack[n-2], top, n-1)
	}
	return 0
}

// sum puts a+b or a-b in place of a, if one of them is a number.
func sum(op uint8, a, b *term, n int) int {
	switch {
	case b.kind == termNumber && op == opPlus:
		return a.plus(b.n, n)
	case b.kind == termNumber:
		return a.plus(-b.n, n)
	case a.kind == termNumber && op == opPlus:
		number := a.n
		*a = *b
		return a.plus(number, n)
	}
	return 0
}

// plus adds a number.
func (t *term) plus(number int64, n int) int {
	if t.kind == termDeref {
		t.addend += number
	} else {
		t.n += number
	}
	return n
}
