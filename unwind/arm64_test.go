package unwind

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// arm64Libraries are those that cross compilers come with: hand-written assembly, lazy
// binding and signed return addresses among them.
const arm64Libraries = "/usr/aarch64-linux-gnu/lib"

// TestRowsOfArm64AreLLVMs compares tables of libraries for arm64 with every row that
// llvm-dwarfdump prints.
func TestRowsOfArm64AreLLVMs(t *testing.T) {
	for _, library := range []string{"libc.so.6", "ld-linux-aarch64.so.1", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libgomp.so.1"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(arm64Libraries, library)
			raw, err := os.ReadFile(name)
			testenv.Need(t, err == nil, name+" (Debian's -arm64-cross packages)")
			w := newWitness(t, raw, BuildOptions{})
			w.compareLLVM(t, name, ".eh_frame")
			if w.rows == 0 {
				t.Error("there are no rows")
			}
			t.Logf("%d rows: %v", w.rows, w.seen)
		})
	}
}

// TestFarRecord steps over a frame that is larger than a rule's distances, with the
// caller's frame pointer and return address at its low end.
func TestFarRecord(t *testing.T) {
	const frame, caller, ra = 2048, 0x20000, 0x400010
	memory := stackOf(caller, ra, 1, 2)
	s := State{IP: 0x400100, Exact: true, Method: ByRegs}
	s.Set(SP, uint64(memory.Base))
	s.Set(X29, 5)
	s.Set(X30, 6)
	r := Rule{Kind: Reg, Register: SP, Flags: SavedAtRegister | ReturnAtRegister, Offset: frame, RA: 1}
	if end, ended := s.Step(ARM64, &r, memory); ended {
		t.Fatalf("the stack ends with %d", end)
	}
	sp, _ := s.Get(SP)
	fp, _ := s.Get(X29)
	if _, known := s.Get(X30); s.IP != ra || s.Exact || fp != caller || sp != uint64(memory.Base)+frame || known {
		t.Errorf("%+v, x30 known: %v", s, known)
	}
}

// TestLeavesHaveNoFrames takes functions of libraries that have call frame information
// for leaves, by their instructions: it must say the same of all their rows.
func TestLeavesHaveNoFrames(t *testing.T) {
	for _, library := range []string{"libc.so.6", "ld-linux-aarch64.so.1", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"} {
		name := filepath.Join(arm64Libraries, library)
		raw, err := os.ReadFile(name)
		testenv.Need(t, err == nil, name+" (Debian's -arm64-cross packages)")
		file, err := elf.NewFile(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		w := newWitness(t, raw, BuildOptions{})
		leaves, others := 0, 0
		for _, s := range symbols {
			start, ok := w.offset(s.Value)
			if !ok || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
				continue
			}
			if !isLeaf(raw[start:][:s.Size]) {
				others++
				continue
			}
			leaves++
			for at := start; at < start+addr.Offset(s.Size); at += 4 {
				r := w.table.Lookup(at)
				r.Flags = 0
				if r != (Rule{Kind: Reg, Register: SP, RA: Same, Link: X30, Saved: [6]int8{Same}}) && r.Kind != None {
					t.Errorf("%s, %s at %#x: %+v", library, s.Name, at, r)
					break
				}
			}
		}
		t.Logf("%s: %d leaves, %d others", library, leaves, others)
		if leaves == 0 {
			t.Errorf("%s has no leaves", library)
		}
	}
}

// TestLeafInstructions asks for each of some instructions whether a leaf may have it.
func TestLeafInstructions(t *testing.T) {
	for leaf, instructions := range map[bool]string{
		true: "cmp sp, x1; cmn sp, #16; tst x0, #-16; add x0, sp, #16; ldr x0, [sp, #16]; ldr x0, [x1], #16; stp x0, x1, [sp, #240]; " +
			"ldr x0, [sp, x1]; st1 {v0.2d}, [sp]; paciasp; autiasp; ret; b .; b.ne .; svc #0; mrs x0, cntvct_el0; madd x0, x1, x2, x3; adds x0, sp, x1",
		false: "add sp, sp, #16; sub sp, sp, #1, lsl #12; mov sp, x0; sub sp, sp, x1; sub sp, sp, w1, uxtw; and sp, x0, #-16; orr sp, x0, #1; " +
			"stp x29, x30, [sp, #-16]!; ldp x0, x1, [sp], #16; str x0, [sp, #-16]!; ldr x0, [sp], #16; ldr q0, [sp], #16; st1 {v0.2d}, [sp], #16; " +
			"ld1 {v0.2d}, [sp], x1; stg x0, [sp], #16; stg x0, [sp, #-16]!; irg sp, x0; addg sp, sp, #16, #1; addvl sp, sp, #1; " +
			"ldr x30, [sp, #8]; ldp x29, x30, [sp]; ldp x30, x29, [sp]; mov x30, x1; add x30, x1, x2; adr x30, .; casal x30, x1, [x2]; ldaddal x1, x30, [x2]; " +
			"bl .; blr x1; br x1; blraa x1, x2; ret x1; .word 0",
	} {
		file := filepath.Join(t.TempDir(), "code.o")
		cmd := exec.Command(testenv.Tool(t, "clang-19"), "--target=aarch64-linux-gnu", "-march=armv9-a+memtag", "-c", "-x", "assembler", "-", "-o", file)
		cmd.Stdin = strings.NewReader(instructions + "\n")
		if msg, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		code, err := f.Section(".text").Data()
		f.Close()
		names := strings.Split(instructions, "; ")
		if err != nil || len(code) != 4*len(names) {
			t.Fatalf("%d bytes of code, %v", len(code), err)
		}
		for i, name := range names {
			if isLeaf(code[4*i:][:4]) != leaf {
				t.Errorf("%s is a leaf: %v", name, !leaf)
			}
		}
	}
}
