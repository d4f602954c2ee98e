package bpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// constantsSpec returns a spec with one program and constants, of which the word at 4 is a variable
// that was 0 and is set to 7.
func constantsSpec(insns asm.Instructions) *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{".rodata": {
			Name: "rodata", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_RDONLY_PROG,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: []byte{1, 2, 3, 0xff, 0, 0, 0, 0}}},
		}},
		Programs:  map[string]*ebpf.ProgramSpec{"p": {Name: "p", Type: ebpf.SocketFilter, License: "GPL", Instructions: insns}},
		Variables: map[string]*ebpf.VariableSpec{"v": {Name: "v", SectionName: ".rodata", Offset: 4, Value: []byte{7, 0, 0, 0}}},
		ByteOrder: binary.LittleEndian,
	}
}

// jump returns a jump over so many units of the kernel.
func jump(op asm.OpCode, a, b asm.Register, n int64, over int16) asm.Instruction {
	return asm.Instruction{OpCode: op, Dst: a, Src: b, Constant: n, Offset: over}
}

// readConstant returns instructions that read a constant.
func readConstant(to asm.Register, at uint32, size asm.Size) asm.Instructions {
	load := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: to, Src: asm.PseudoMapValue, Constant: int64(at) << 32}
	return asm.Instructions{load.WithReference(".rodata"), asm.LoadMem(to, to, 0, size)}
}

// TestLeaveOutUnreached wants what cannot be reached to go, and nothing else.
func TestLeaveOutUnreached(t *testing.T) {
	eq, ja := asm.JEq.Op(asm.ImmSource), jumpAlways
	any := asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)
	one, two, exit := asm.Mov.Imm(asm.R0, 1), asm.Mov.Imm(asm.R0, 2), asm.Return()
	wide := asm.LoadImm(asm.R0, 1<<40, asm.DWord)
	line := func(s string, i asm.Instruction) asm.Instruction { return i.WithSource(asm.Comment(s)) }
	known := asm.Mov.Imm(asm.R1, 0)
	constant := func(at uint32) asm.Instructions { return readConstant(asm.R1, at, asm.Byte) }
	call := asm.Call.Label("f")
	for _, test := range []struct {
		name       string
		have, want asm.Instructions
	}{
		{"taken", asm.Instructions{known, jump(eq, asm.R1, 0, 0, 2), wide, one, exit}, asm.Instructions{known, one, exit}},
		{"not taken", asm.Instructions{known, jump(eq, asm.R1, 0, 1, 2), one, exit, two, exit}, asm.Instructions{known, one, exit}},
		{"over what is reached from elsewhere",
			asm.Instructions{any, known, jump(eq, asm.R2, 0, 0, 1), jump(eq, asm.R1, 0, 0, 1), one, two, exit},
			asm.Instructions{any, known, jump(eq, asm.R2, 0, 0, 1), jump(eq, asm.R1, 0, 0, 1), one, two, exit}},
		{"jump that stays gets shorter",
			asm.Instructions{any, jump(eq, asm.R2, 0, 0, 4), known, jump(eq, asm.R1, 0, 0, 2), wide, one, exit},
			asm.Instructions{any, jump(eq, asm.R2, 0, 0, 1), known, one, exit}},
		{"backwards",
			asm.Instructions{any, known, jump(eq, asm.R1, 0, 0, 1), two, jump(eq, asm.R2, 0, 9, -5), one, exit},
			asm.Instructions{any, known, jump(eq, asm.R2, 0, 9, -3), one, exit}},
		{"constant", append(constant(1), jump(eq, asm.R1, 0, 2, 1), two, one, exit), append(constant(1), one, exit)},
		{"constant that is set", append(constant(4), jump(eq, asm.R1, 0, 0, 2), one, exit, two, exit), append(constant(4), one, exit)},
		{"beyond the constants", append(constant(8), jump(eq, asm.R1, 0, 0, 1), one, two, exit), append(constant(8), jump(eq, asm.R1, 0, 0, 1), one, two, exit)},
		{"different on two ways",
			asm.Instructions{any, known, jump(eq, asm.R2, 0, 0, 1), asm.Mov.Imm(asm.R1, 5), jump(eq, asm.R1, 0, 0, 1), one, two, exit},
			asm.Instructions{any, known, jump(eq, asm.R2, 0, 0, 1), asm.Mov.Imm(asm.R1, 5), jump(eq, asm.R1, 0, 0, 1), one, two, exit}},
		{"changed in a loop",
			asm.Instructions{known, one, jump(eq, asm.R1, 0, 3, 2), asm.Add.Imm(asm.R1, 1), jump(ja, 0, 0, 0, -3), exit},
			asm.Instructions{known, one, jump(eq, asm.R1, 0, 3, 2), asm.Add.Imm(asm.R1, 1), jump(ja, 0, 0, 0, -3), exit}},
		{"after a call nothing is known", asm.Instructions{known, asm.FnGetPrandomU32.Call(), jump(eq, asm.R1, 0, 0, 1), one, two, exit}, nil},
		{"function that nobody calls",
			asm.Instructions{known, jump(eq, asm.R1, 0, 0, 1), call, one, exit, two.WithSymbol("f"), exit},
			asm.Instructions{known, one, exit}},
		{"function",
			asm.Instructions{known, jump(eq, asm.R1, 0, 0, 1), two, call, exit, asm.Mov.Imm(asm.R0, 3).WithSymbol("f"), jump(eq, asm.R1, 0, 0, 1), two, exit},
			asm.Instructions{known, call, exit, asm.Mov.Imm(asm.R0, 3).WithSymbol("f"), jump(eq, asm.R1, 0, 0, 1), two, exit}},
		{"source line of what is left out",
			asm.Instructions{known, line("a", jump(eq, asm.R1, 0, 0, 2)), line("b", wide), one, line("c", exit)},
			asm.Instructions{known, line("b", one), line("c", exit)}},
		{"function that begins with a jump", asm.Instructions{call, exit, jump(ja, 0, 0, 0, 1).WithSymbol("f"), two, one, exit}, asm.Instructions{call, exit, jump(ja, 0, 0, 0, 0).WithSymbol("f"), one, exit}},
		{"jump that is not understood", asm.Instructions{known, jump(eq, asm.R1, 0, 0, 1), two, {OpCode: asm.LongJump("").OpCode, Constant: 0}, one, exit}, nil},
	} {
		want := test.want
		if want == nil {
			want = test.have
		}
		spec := constantsSpec(nil)
		if got, want := fmt.Sprint(leaveOutUnreached(slices.Clone(test.have), constantsOf(spec))), fmt.Sprint(want); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, want)
		}
	}
}

// randomProgram returns a program that computes something of numbers, by jumps that are decided and
// others, and returns it.
func randomProgram(r *rand.Rand) asm.Instructions {
	insns := asm.Instructions{asm.FnGetSmpProcessorId.Call()}
	for reg := asm.R0; reg < asm.R6; reg++ {
		insns = append(insns, asm.Mov.Imm(reg, int32(r.Uint32())))
	}
	insns = append(insns, asm.Mov.Reg(asm.R6, asm.R10))
	ops := []asm.ALUOp{asm.Mov, asm.Add, asm.Sub, asm.And, asm.Or, asm.Xor, asm.LSh, asm.RSh, asm.Mul, asm.ArSh, asm.Neg}
	jumps := []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSet, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE}
	n := 20 + r.IntN(60)
	for i := range n {
		a, b := asm.Register(r.IntN(6)), asm.Register(r.IntN(6))
		number := int32(r.Uint32()) >> r.IntN(32)
		switch r.IntN(5) {
		case 0:
			insns = append(insns, readConstant(a, uint32(r.IntN(5)), []asm.Size{asm.Byte, asm.Half, asm.Word}[r.IntN(2)])...)
		case 1, 2:
			op := jumps[r.IntN(len(jumps))]
			over := int16(r.IntN(n - i))
			code := []asm.OpCode{op.Imm(a, 0, "").OpCode, op.Imm32(a, 0, "").OpCode}[r.IntN(2)]
			if r.IntN(2) == 0 {
				insns = append(insns, jump(code, a, 0, int64(number), over))
			} else {
				insns = append(insns, jump(code.SetSource(asm.RegSource), a, b, 0, over))
			}
		default:
			op := ops[r.IntN(len(ops))]
			switch {
			case op == asm.Neg:
				insns = append(insns, op.Imm(a, 0))
			case op == asm.LSh || op == asm.RSh || op == asm.ArSh:
				insns = append(insns, []asm.Instruction{op.Imm(a, int32(r.IntN(64))), op.Imm32(a, int32(r.IntN(32)))}[r.IntN(2)])
			default:
				insns = append(insns, []asm.Instruction{op.Imm(a, number), op.Imm32(a, number), op.Reg(a, b), op.Reg32(a, b)}[r.IntN(4)])
			}
		}
	}
	return withTargets(append(insns, asm.Xor.Reg(asm.R0, asm.R1), asm.Add.Reg(asm.R0, asm.R2), asm.Xor.Reg32(asm.R0, asm.R3), asm.Return()))
}

// withTargets has jumps, which were over so many instructions, go over the units of the kernel.
func withTargets(insns asm.Instructions) asm.Instructions {
	offsets, _ := offsetsOf(insns)
	for i := range insns {
		if isJump(&insns[i]) {
			to := min(i+1+int(insns[i].Offset), len(insns)-4)
			if insns[to].OpCode.Class() == asm.LdXClass {
				to++ // not between an address and what is read there
			}
			insns[i].Offset = int16(offsets[to] - offsets[i] - 1)
		}
	}
	return insns
}

// TestLeaveOutUnused wants what nobody reads to go, and nothing else.
func TestLeaveOutUnused(t *testing.T) {
	exit, zero := asm.Return(), asm.Mov.Imm(asm.R0, 0)
	six := asm.Mov.Imm(asm.R6, 6)
	cond := jump(asm.JEq.Op(asm.RegSource), asm.R0, asm.R6, 0, 1)
	store := asm.StoreMem(asm.R10, -8, asm.R6, asm.DWord)
	load := asm.LoadMem(asm.R6, asm.R10, -8, asm.DWord)
	swap := asm.Xchg.Mem(asm.R10, asm.R6, asm.DWord, -8)
	compare := asm.CmpXchg.Mem(asm.R10, asm.R6, asm.DWord, -8)
	call := asm.FnGetSmpProcessorId.Call()
	for _, test := range []struct {
		name       string
		have, want asm.Instructions
	}{
		{"number", asm.Instructions{six, zero, exit}, asm.Instructions{zero, exit}},
		{"result", asm.Instructions{zero, exit}, nil},
		{"written again", asm.Instructions{asm.Mov.Imm(asm.R0, 9), zero, exit}, asm.Instructions{zero, exit}},
		{"chain", asm.Instructions{six, asm.Mov.Reg(asm.R7, asm.R6), asm.Add.Reg(asm.R7, asm.R6), zero, exit}, asm.Instructions{zero, exit}},
		{"counted in a loop",
			asm.Instructions{six, zero, asm.Add.Imm(asm.R6, 1), asm.Add.Imm(asm.R0, 1), jump(asm.JEq.Op(asm.ImmSource), asm.R0, 0, 9, -3), exit},
			asm.Instructions{zero, asm.Add.Imm(asm.R0, 1), jump(asm.JEq.Op(asm.ImmSource), asm.R0, 0, 9, -2), exit}},
		{"read on one way", asm.Instructions{call, six, jump(asm.JEq.Op(asm.ImmSource), asm.R0, 0, 0, 1), asm.Mov.Reg(asm.R0, asm.R6), exit}, nil},
		{"read by a jump", asm.Instructions{zero, six, cond, zero, exit}, nil},
		{"read by a store", asm.Instructions{six, store, zero, exit}, nil},
		{"read by an exchange", asm.Instructions{store, six, swap, zero, exit}, nil},
		{"compared with", asm.Instructions{store, zero, compare, zero, exit}, nil},
		{"argument", asm.Instructions{asm.Mov.Imm(asm.R1, 1), asm.Mov.Imm(asm.R5, 1), call, exit}, nil},
		{"loads stay", asm.Instructions{six, load, zero, exit}, asm.Instructions{load, zero, exit}},
		{"address", append(readConstant(asm.R6, 0, asm.Byte)[:1:1], zero, exit), asm.Instructions{zero, exit}},
		{"jump over what is left out", asm.Instructions{zero, jump(jumpAlways, 0, 0, 0, 1), six, exit}, asm.Instructions{zero, exit}},
	} {
		want := test.want
		if want == nil {
			want = test.have
		}
		if got, want := fmt.Sprint(leaveOutUnused(slices.Clone(test.have))), fmt.Sprint(want); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, want)
		}
	}
}

// TestIdleInTheKernel runs random programs as they are, and without what has no effect, and wants the same
// results.
func TestIdleInTheKernel(t *testing.T) {
	testenv.Root(t)
	reduced := 0
	for seed := range uint64(1000) {
		insns := randomProgram(rand.New(rand.NewPCG(seed, 0)))
		spec := constantsSpec(slices.Clone(insns))
		want, err := resultOf(spec)
		if err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, insns)
		}
		leaveOutIdle(spec)
		less := spec.Programs["p"].Instructions
		got, err := resultOf(spec)
		if err != nil || got != want {
			t.Errorf("seed %d: %#x, %v; as a whole %#x\n%v\nof\n%v", seed, got, err, want, less, insns)
		}
		if len(less) < len(insns) {
			reduced++
		}
	}
	if reduced < 500 {
		t.Errorf("only %d programs have become smaller", reduced)
	}
}

// resultOf returns what the program of a spec returns.
func resultOf(spec *ebpf.CollectionSpec) (uint32, error) {
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.Programs["p"].Run(&ebpf.RunOptions{Data: []byte(strings.Repeat("x", 14))})
}
