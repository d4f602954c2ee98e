package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// codeFile is a file with nothing but code, from 0x1000 on, that starts at entry.
func codeFile(machine elf.Machine, entry uint64, code []byte) []byte {
	return elftest.File{
		Class: elf.ELFCLASS64, Machine: machine, Type: elf.ET_EXEC, Entry: entry,
		Sections: []elftest.Section{{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Align: 16, Data: code}},
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x1000}},
	}.Build()
}

// kindsOf writes the kind of rule of each byte of code: "." for none, "S" for signals,
// "O" for the outermost frame, "R" for a register, "F" for frame pointers.
func kindsOf(t *testing.T, raw []byte) string {
	t.Helper()
	table := onlySource(t, raw, (*builder).ehFrame, (*builder).known, (*builder).framePointers)
	file, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text := file.Section(".text")
	var kinds strings.Builder
	for i := range text.Size {
		r := table.Lookup(addr.Offset(text.Offset + i))
		kinds.WriteByte(map[Kind]byte{None: '.', Signal: 'S', Outermost: 'O', Reg: 'R', FP: 'F'}[r.Kind])
	}
	return kinds.String()
}

func TestKnownCode(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine elf.Machine
		entry   uint64
		code    string // in hexadecimal
		want    string
	}{
		{"musl's restorer", elf.EM_X86_64, 0, "c3 90 48c7c00f000000 0f05 c3", ".SSSSSSSSSS."},
		{"no room in front", elf.EM_X86_64, 0, "c3 48c7c00f000000 0f05 c3", ".SSSSSSSSS."},
		{"another system call", elf.EM_X86_64, 0, "c3 90 48c7c00e000000 0f05 c3", "............"},
		{"musl's clone", elf.EM_X86_64, 0, "0f05 85c0 750f 31ed 5f 41ffd1 89c7 31c0 b03c 0f05 f4 c3", ".........OOOOOOOOOOOO."},
		{"glibc's contexts", elf.EM_X86_64, 0, "c390 4889dc 488b3c24 4885ff 7408 e800000000 4889c7 e800000000 f4", ".O.........................."},
		{"glibc's clone3", elf.EM_X86_64, 0, "c390 0f05 4885c0 7c18 7401 c3 31ed 4883e4f0 4c89c7 ffd2", "..RRRRRRRRRR..........."},
		{"the same registers elsewhere", elf.EM_X86_64, 0, "c390 4889dc 488b4424 08 c3", "..........."},
		{"musl's entry", elf.EM_X86_64, 0x1002, "90c3 4831ed 4889e7 488d3500000000 4883e4f0 e800000000 90 c3",
			"..OOOOOOOOOOOOOOOOOOOOOO.."},
		{"the dynamic loader's entry", elf.EM_X86_64, 0x1000, "4889e7 e800000000 4989c4 4889e2 e800000000 41ffe4 c3", "OOOOOOOOOOOOOOOOOOOOOO."},
		{"the vdso of arm64", elf.EM_AARCH64, 0, "c0035fd6 1f2003d5 681180d2 010000d4 c0035fd6", "....SSSSSSSSSSSS...."},
		{"the entry for arm64", elf.EM_AARCH64, 0x1000, "1d0080d2 1e0080d2 e0030091 00000094 c0035fd6", "OOOOOOOOOOOOOOOO...."},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			if got := kindsOf(t, codeFile(c.machine, c.entry, code)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestFramePointersOfNode wants the rule of frame pointers for V8's embedded builtins in
// Node, and for nothing else.
func TestFramePointersOfNode(t *testing.T) {
	name, err := exec.LookPath("node")
	if err != nil {
		t.Skip("NOT CHECKED: needs node in PATH")
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, raw, BuildOptions{})
	symbols, err := w.file.Symbols()
	if err != nil {
		t.Skip(err)
	}
	builtins, without := 0, 0
	for _, s := range symbols {
		off, ok := w.offset(s.Value)
		if !ok || elf.ST_TYPE(s.Info) != elf.STT_FUNC && !strings.HasPrefix(s.Name, "Builtins_") {
			continue
		}
		r := w.table.Lookup(off)
		switch {
		case strings.HasPrefix(s.Name, "Builtins_"):
			if builtins++; r.Kind != FP {
				without++
			}
		case r.Kind == FP:
			t.Errorf("%s keeps frame pointers", s.Name)
		}
	}
	t.Logf("%d builtins, %d without the rule", builtins, without)
	if builtins == 0 || without*20 > builtins {
		t.Error("too many have no rule")
	}
}

// TestNoFramePointers looks at files with much code that says nothing, and keeps no frame
// pointers.
func TestNoFramePointers(t *testing.T) {
	files := systemFiles(t)
	for _, pattern := range []string{"/usr/lib/x86_64-linux-gnu/libSvtAv1Enc.so.?", "/usr/lib/x86_64-linux-gnu/libGLdispatch.so.?"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		table := onlySource(t, raw, (*builder).ehFrame, (*builder).framePointers)
		for i := range table.Rules() {
			if r := table.rule(uint16(i)); r.Kind == FP {
				t.Errorf("%s has code that keeps frame pointers", name)
			}
		}
	}
}

// TestFramePointersARM64 has functions that begin with a frame, and others between.
func TestFramePointersARM64(t *testing.T) {
	function := bytes.Repeat([]byte("\x1f\x20\x03\xd5"), 128)
	copy(function, "\xfd\x7b\xbf\xa9\xfd\x03\x00\x91")
	kinds := kindsOf(t, codeFile(elf.EM_AARCH64, 0, bytes.Repeat(function, 300)))
	if strings.Trim(kinds, "F") != "" {
		t.Errorf("%d of %d bytes have the rule", strings.Count(kinds, "F"), len(kinds))
	}
}

// TestPLTOfARM64 follows llvm-objdump's disassembly of lld's entries for arm64.
func TestPLTOfARM64(t *testing.T) {
	dir := t.TempDir()
	source, name := filepath.Join(dir, "plt.c"), filepath.Join(dir, "plt.so")
	if err := os.WriteFile(source, []byte("int a(void), b(void); int main(void) { return a() + b(); }"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Tool(t, "clang-19"), "--target=aarch64-linux-gnu", "-fuse-ld=lld", "-nostdlib", "-shared", "-Wl,-z,lazy", "-o", name, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, raw, BuildOptions{})
	out, err := exec.Command(testenv.Tool(t, "llvm-objdump-19"), "-d", "-j.plt", "--no-show-raw-insn", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	depth := int32(0)
	for line := range strings.Lines(string(out)) {
		at, code, ok := strings.Cut(strings.TrimSpace(line), ":")
		if code = strings.TrimSpace(code); !ok || code == "" || strings.ContainsAny(at, " /<") {
			continue
		}
		off, _ := w.offset(number(t, at))
		if r := w.table.Lookup(off); r.Kind != Reg || r.Offset != depth || (r.RA == Same) != (depth == 0) {
			t.Errorf("%s: %+v, want %d bytes", line, r, depth)
		}
		w.rows++
		switch {
		case strings.HasPrefix(code, "stp"):
			depth = 16
		case strings.HasPrefix(code, "br"):
			depth = 0
		}
	}
	if w.rows < 12 {
		t.Errorf("only %d instructions", w.rows)
	}
}
