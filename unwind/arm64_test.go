package unwind

import (
	"os"
	"path/filepath"
	"testing"

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
			testenv.Need(t, err == nil, name+" (gcc-aarch64-linux-gnu)")
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
