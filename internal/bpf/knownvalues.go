package bpf

import (
	"encoding/binary"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// constant is a map whose value programs can read and nobody can change.
type constant struct {
	name  string
	value []byte
}

// constantsOf returns the constants of a spec as they are set now.
func constantsOf(spec *ebpf.CollectionSpec) []constant {
	var all []constant
	for name, m := range spec.Maps {
		if b := constantValue(m); b != nil {
			all = append(all, constant{name, slices.Clone(b)})
		}
	}
	for _, v := range spec.Variables {
		for _, c := range all {
			if c.name == v.SectionName && uint64(v.Offset) <= uint64(len(c.value)) {
				copy(c.value[v.Offset:], v.Value)
			}
		}
	}
	return all
}

// constantValue returns what lies in a map before variables are set, nil if the kernel lets programs or
// others change it.
func constantValue(m *ebpf.MapSpec) []byte {
	if m.Type != ebpf.Array || m.Flags&unix.BPF_F_RDONLY_PROG == 0 || m.MaxEntries != 1 || len(m.Contents) != 1 {
		return nil
	}
	b, _ := m.Contents[0].Value.([]byte)
	return b
}

// registers are what is known of R0 to R10 before an instruction.
type registers [11]fact

// fact is what is known of a register.
type fact struct {
	n    uint64 // the number, or the offset in the constant
	kind knownKind
	of   uint8 // the index of a constant
}

type knownKind uint8

const (
	knownNot knownKind = iota
	knownNumber
	knownAddress // in a constant
)

// join leaves what is known either way, and reports whether that is less than before.
func (r *registers) join(other *registers) (changed bool) {
	for i := range r {
		if r[i] != other[i] && r[i].kind != knownNot {
			r[i], changed = fact{}, true
		}
	}
	return changed
}

// execute changes what is known by an instruction.
func (r *registers) execute(ins *asm.Instruction, constants []constant) {
	switch op, class := ins.OpCode, ins.OpCode.Class(); {
	case class.IsALU():
		r[ins.Dst] = r.compute(ins)
	case op.IsDWordLoad():
		r[ins.Dst] = loaded(ins, constants)
	case class == asm.LdXClass:
		r[ins.Dst] = r.read(ins, constants)
	case op.JumpOp() == asm.Call, class == asm.LdClass:
		clear(r[:asm.R6])
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		r[asm.R0], r[ins.Src], r[ins.Dst] = fact{}, fact{}, fact{}
	}
}

// loaded returns what a load of 64 bits in the program itself loads.
func loaded(ins *asm.Instruction, constants []constant) fact {
	switch ins.Src {
	case 0:
		return fact{kind: knownNumber, n: uint64(ins.Constant)}
	case asm.PseudoMapValue:
		of := slices.IndexFunc(constants, func(c constant) bool { return c.name == ins.Reference() })
		if of >= 0 && of < 1<<8 {
			return fact{kind: knownAddress, of: uint8(of), n: uint64(ins.Constant) >> 32}
		}
	}
	return fact{}
}

// read returns what a load from memory reads.
func (r *registers) read(ins *asm.Instruction, constants []constant) fact {
	from := r[ins.Src]
	if from.kind != knownAddress || ins.OpCode.Mode() != asm.MemMode {
		return fact{}
	}
	b := constants[from.of].value
	at, size := from.n+uint64(int64(ins.Offset)), uint64(ins.OpCode.Size().Sizeof())
	if at > uint64(len(b)) || uint64(len(b))-at < size {
		return fact{}
	}
	var word [8]byte
	copy(word[:], b[at:at+size])
	return fact{kind: knownNumber, n: binary.LittleEndian.Uint64(word[:])}
}

// compute returns the result of an arithmetic instruction.
func (r *registers) compute(ins *asm.Instruction) fact {
	op, is32 := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALUClass
	a, b := r[ins.Dst], r.operand(ins)
	if ins.Offset != 0 {
		return fact{} // another instruction than that of the same code
	}
	if op == asm.Mov && !is32 {
		return b
	}
	if b.kind != knownNumber || a.kind != knownNumber && op != asm.Mov {
		return fact{}
	}
	shift := b.n & 63
	if is32 {
		a.n, shift = uint64(uint32(a.n)), b.n&31
	}
	var n uint64
	switch op {
	case asm.Mov:
		n = b.n
	case asm.Add:
		n = a.n + b.n
	case asm.Sub:
		n = a.n - b.n
	case asm.And:
		n = a.n & b.n
	case asm.Or:
		n = a.n | b.n
	case asm.Xor:
		n = a.n ^ b.n
	case asm.LSh:
		n = a.n << shift
	case asm.RSh:
		n = a.n >> shift
	default:
		return fact{}
	}
	if is32 {
		n = uint64(uint32(n))
	}
	return fact{kind: knownNumber, n: n}
}

// operand returns the second operand of an instruction.
func (r *registers) operand(ins *asm.Instruction) fact {
	if ins.OpCode.Source() == asm.RegSource {
		return r[ins.Src]
	}
	return fact{kind: knownNumber, n: uint64(int64(int32(ins.Constant)))}
}

// decide returns whether a jump is taken, if that is known.
func (r *registers) decide(jump *asm.Instruction) (taken, decided bool) {
	op := jump.OpCode.JumpOp()
	if op == asm.Ja {
		return true, true
	}
	a, b := r[jump.Dst], r.operand(jump)
	if a.kind != knownNumber || b.kind != knownNumber {
		return false, false
	}
	x, y := a.n, b.n
	signedX, signedY := int64(x), int64(y)
	if jump.OpCode.Class() == asm.Jump32Class {
		x, y = uint64(uint32(x)), uint64(uint32(y))
		signedX, signedY = int64(int32(x)), int64(int32(y))
	}
	switch op {
	case asm.JEq:
		return x == y, true
	case asm.JNE:
		return x != y, true
	case asm.JGT:
		return x > y, true
	case asm.JGE:
		return x >= y, true
	case asm.JLT:
		return x < y, true
	case asm.JLE:
		return x <= y, true
	case asm.JSet:
		return x&y != 0, true
	case asm.JSGT:
		return signedX > signedY, true
	case asm.JSGE:
		return signedX >= signedY, true
	case asm.JSLT:
		return signedX < signedY, true
	case asm.JSLE:
		return signedX <= signedY, true
	}
	return false, false
}
