package bpf

import "github.com/cilium/ebpf/asm"

// leaveOutUnused returns a program without the instructions that do nothing but write a register which
// nobody reads afterwards. Most were read by what [leaveOutUnreached] has left out. A program that
// is not understood is returned as it is.
func leaveOutUnused(insns asm.Instructions) asm.Instructions {
	r := reachable{insns: insns}
	if !r.index() {
		return insns
	}
	wanted := r.wanted()
	keep, always := make([]bool, len(insns)), make([]bool, len(insns))
	for i := range insns {
		ins := &insns[i]
		keep[i] = ins.Symbol() != "" || !isUnused(ins, wanted[i])
		always[i] = r.targets[i] >= 0 && ins.OpCode.JumpOp() == asm.Ja
	}
	return r.only(keep, always)
}

// registerSet has a bit for each register.
type registerSet uint16

const (
	result       registerSet = 1 << asm.R0
	arguments    registerSet = 1<<asm.R1 | 1<<asm.R2 | 1<<asm.R3 | 1<<asm.R4 | 1<<asm.R5
	allRegisters registerSet = 1<<11 - 1
)

// wanted returns for each instruction the registers that may be read after it before they are written.
func (r *reachable) wanted() []registerSet {
	n := len(r.insns)
	before, after := make([]registerSet, n+1), make([]registerSet, n)
	for changed := true; changed; {
		changed = false
		for i := n - 1; i >= 0; i-- {
			ins := &r.insns[i]
			if op := ins.OpCode.JumpOp(); op != asm.Exit && op != asm.Ja {
				after[i] = before[i+1]
			}
			if to := r.targets[i]; to >= 0 {
				after[i] |= before[to]
			}
			need := after[i]
			if !isUnused(ins, need) {
				need = need&^written(ins) | read(ins)
			}
			if need != before[i] {
				before[i], changed = need, true
			}
		}
	}
	return after
}

// isUnused reports whether an instruction only writes a register that is not wanted.
func isUnused(ins *asm.Instruction, wanted registerSet) bool {
	isPure := ins.OpCode.Class().IsALU() || ins.OpCode.IsDWordLoad()
	return isPure && wanted>>ins.Dst&1 == 0
}

// written returns the registers whose values an instruction is certain to replace.
func written(ins *asm.Instruction) registerSet {
	switch op, class := ins.OpCode, ins.OpCode.Class(); {
	case class.IsALU(), op.IsDWordLoad(), class == asm.LdXClass:
		return 1 << ins.Dst
	case op.JumpOp() == asm.Call:
		return result | arguments
	}
	return 0
}

// read returns the registers that an instruction may read.
func read(ins *asm.Instruction) registerSet {
	dst, src := registerSet(1)<<ins.Dst, registerSet(1)<<ins.Src
	op, class := ins.OpCode, ins.OpCode.Class()
	if class.IsALU() && op.ALUOp() == asm.Mov {
		dst = 0
	}
	if (class.IsALU() || class.IsJump()) && op.Source() != asm.RegSource {
		src = 0
	}
	switch {
	case op.JumpOp() == asm.Exit:
		return result
	case op.JumpOp() == asm.Call:
		return arguments
	case op.JumpOp() == asm.Ja, op.IsDWordLoad():
		return 0
	case class == asm.LdClass:
		return allRegisters // from a packet, which other registers name
	case class == asm.LdXClass:
		return src
	case class == asm.StXClass:
		return dst | src | result // which one of the atomic instructions compares
	}
	return dst | src
}
