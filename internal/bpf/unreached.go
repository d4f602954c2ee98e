package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// leaveOutIdle takes those instructions out of the programs that this kernel and the constants of the
// spec leave without effect. Constants that are set later are not heeded.
//
// The kernel would look at most of them. It takes out those that it finds out of reach as well, but for
// each such place it moves the rest of the program and looks at all jumps again: that took a fifth of the
// time in which the large programs were loaded.
func leaveOutIdle(spec *ebpf.CollectionSpec) {
	constants := constantsOf(spec)
	for _, p := range spec.Programs {
		p.Instructions = leaveOutUnused(leaveOutUnreached(p.Instructions, constants))
	}
}

// leaveOutUnreached returns a program without the instructions that nothing can reach. One that is not
// understood is returned as it is.
func leaveOutUnreached(insns asm.Instructions, constants []constant) asm.Instructions {
	r := reachable{insns: insns, constants: constants}
	if !r.index() || !r.follow() {
		return insns
	}
	return r.reduced()
}

// reachable finds out which instructions of a program can be reached.
type reachable struct {
	insns     asm.Instructions
	constants []constant
	targets   []int32        // of jumps, by instruction; -1 for all others
	functions map[string]int // where they begin
	joins     []bool         // the instruction is reached from elsewhere than the one before
	states    []*registers   // before an instruction that joins; nil until it is reached
	reached   []bool         // with one more, behind the last instruction
	next      []int          // to go on from
}

// index finds the targets of jumps, and reports whether all of them are understood.
func (r *reachable) index() bool {
	n := len(r.insns)
	r.targets, r.joins, r.functions = make([]int32, n), make([]bool, n), map[string]int{}
	offsets, size := offsetsOf(r.insns)
	at := make([]int32, size) // instructions by offset, plus 1
	for i := range r.insns {
		at[offsets[i]] = int32(i + 1)
		if symbol := r.insns[i].Symbol(); symbol != "" {
			r.functions[symbol], r.joins[i] = i, true
		}
	}
	for i := range r.insns {
		ins := &r.insns[i]
		r.targets[i] = -1
		if !isJump(ins) {
			continue
		}
		to := int(offsets[i]) + 1 + int(ins.Offset)
		if !isPlain(ins) || to < 0 || to >= size || at[to] == 0 {
			return false
		}
		r.targets[i] = at[to] - 1
		r.joins[r.targets[i]] = true
	}
	return true
}

// offsetsOf returns where instructions are, in the units of the kernel, and the size of all.
func offsetsOf(insns asm.Instructions) (offsets []int32, size int) {
	offsets = make([]int32, len(insns))
	for i := range insns {
		offsets[i] = int32(size)
		size += int(insns[i].Width())
	}
	return offsets, size
}

// isJump reports whether an instruction may lead to another one of its function than the next.
func isJump(ins *asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// isPlain reports whether a jump has its target in its offset, and depends on registers alone.
func isPlain(jump *asm.Instruction) bool {
	op := jump.OpCode.JumpOp()
	return jump.Reference() == "" && op != asm.InvalidJumpOp && (op != asm.Ja || jump.OpCode.Class() == asm.JumpClass)
}

// follow follows the program from its beginning, and reports whether it was understood.
func (r *reachable) follow() bool {
	n := len(r.insns)
	if n == 0 {
		return false
	}
	r.states, r.reached = make([]*registers, n), make([]bool, n+1)
	r.joins[0] = true
	r.arrive(0, &registers{})
	for len(r.next) > 0 {
		last := len(r.next) - 1
		i := r.next[last]
		r.next = r.next[:last]
		if !r.walk(i) {
			return false
		}
	}
	return true
}

// arrive notes what is known where an instruction is reached from elsewhere. It is gone on from there
// when that is news.
func (r *reachable) arrive(i int, with *registers) {
	if was := r.states[i]; was == nil {
		r.states[i] = new(*with)
	} else if !was.join(with) {
		return
	}
	r.next = append(r.next, i)
}

// walk goes on from an instruction to the next one that joins, or to where the way ends. It reports
// whether all was understood.
func (r *reachable) walk(i int) bool {
	have := *r.states[i]
	for {
		r.reached[i] = true
		ins := &r.insns[i]
		if to := r.targets[i]; to >= 0 {
			taken, decided := have.decide(ins)
			if taken || !decided {
				r.arrive(int(to), &have)
			}
			if taken && decided {
				return true
			}
		} else if ins.OpCode.JumpOp() == asm.Exit {
			return true
		} else if ins.IsFunctionReference() {
			function, ok := r.functions[ins.Reference()]
			if !ok {
				return false
			}
			r.arrive(function, &registers{})
		}
		have.execute(ins, r.constants)
		if i++; i == len(r.insns) {
			return false // no program ends so
		}
		if r.joins[i] {
			r.arrive(i, &have)
			return true
		}
	}
}

// reduced returns the program without what is not reached. As in the kernel, a jump that always goes one
// way stays if its other way is reached from elsewhere.
func (r *reachable) reduced() asm.Instructions {
	keep, always := make([]bool, len(r.insns)), make([]bool, len(r.insns))
	for i := range keep {
		keep[i] = r.reached[i]
		if to := r.targets[i]; keep[i] && to >= 0 {
			always[i] = r.insns[i].OpCode.JumpOp() == asm.Ja || !r.reached[i+1]
			keep[i] = always[i] || r.reached[to]
		}
	}
	return r.only(keep, always)
}

// only returns the instructions to keep, but jumps to the next of them, in the place of all. Those in
// always become jumps that are always taken.
func (r *reachable) only(keep, always []bool) asm.Instructions {
	r.leaveOutNowhere(keep, always)
	old := make([]int32, 0, len(r.insns))  // places of what is kept
	place := make([]int32, len(r.insns)+1) // in what is kept, of an instruction or of the next that is kept
	out := r.insns[:0]                     // what is written was read before
	var line fmt.Stringer                  // the last source line of what was left out
	for i := range r.insns {
		ins := r.insns[i]
		place[i] = int32(len(out))
		source := ins.Source()
		if !keep[i] {
			if source != nil {
				line = source
			}
			continue
		}
		if always[i] {
			ins.OpCode, ins.Dst, ins.Src, ins.Constant = jumpAlways, 0, 0, 0
		}
		if line != nil && source == nil {
			ins = ins.WithSource(line)
		}
		line = nil
		old, out = append(old, int32(i)), append(out, ins)
	}
	offsets, _ := offsetsOf(out)
	for i := range out {
		if to := r.targets[old[i]]; to >= 0 {
			out[i].Offset = int16(offsets[place[to]] - offsets[i] - 1)
		}
	}
	return out
}

// jumpAlways jumps in any case.
var jumpAlways = asm.Ja.Op(asm.ImmSource)

// leaveOutNowhere takes those jumps out of keep that would go to the next instruction. The first one of a
// function stays.
func (r *reachable) leaveOutNowhere(keep, always []bool) {
	n := len(keep)
	following := make([]int32, n+1) // the instruction itself if it stays, or the next that does
	following[n] = int32(n)
	for i := n - 1; i >= 0; i-- {
		if following[i] = int32(i); !keep[i] {
			following[i] = following[i+1]
		}
	}
	for i := range keep {
		if keep[i] && always[i] && following[r.targets[i]] == following[i+1] && r.insns[i].Symbol() == "" {
			keep[i] = false
		}
	}
}
