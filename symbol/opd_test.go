package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// TestDescriptorsOfObject: functions of an ELFv1 object have the names that the assembler
// gives their code, and llvm-symbolizer agrees.
func TestDescriptorsOfObject(t *testing.T) {
	for _, args := range [][]string{nil, {"-g"}} {
		dir := t.TempDir()
		source, name := filepath.Join(dir, "narrow.c"), filepath.Join(dir, "object.o")
		code, err := os.ReadFile("testdata/narrow.c")
		if err != nil {
			t.Fatal(err)
		}
		// Data at address 0 of another section are a function to llvm-symbolizer.
		code = bytes.Replace(code, []byte("int table["), []byte("extern int table["), 1)
		if err := os.WriteFile(source, code, 0o666); err != nil {
			t.Fatal(err)
		}
		run(t, "clang-19", append(args, "--target=powerpc64-linux-gnu", "-mabi=elfv1", "-O2", "-c", source, "-o", name)...)
		file := open(t, name)
		symbols, err := file.ELFSymbols()
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for _, s := range symbols {
			if s.Name != "fill" && s.Name != "entry" {
				continue
			}
			for v := s.Virt; v < s.Virt+addr.Virt(s.Size); v += 4 {
				frames := file.LookupVirt(v).Frames
				if len(frames) == 0 || frames[len(frames)-1].Linkage != s.Name {
					t.Errorf("%v: %+v, want %s", v, frames, s.Name)
				}
				// Without debug information llvm-symbolizer does not relocate .opd.
				if asked++; asked%8 != 1 || args == nil {
					continue
				}
				out, err := exec.Command(testenv.Tool(t, "llvm-symbolizer-19"), "--functions=linkage", "--output-style=GNU", "--obj="+name, v.String()).Output()
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				if err != nil || len(lines) < 2 || lines[len(lines)-2] != s.Name {
					t.Errorf("%v: llvm-symbolizer says %s, %v; want %s", v, out, err, s.Name)
				}
			}
		}
		if asked < 40 {
			t.Errorf("%d instructions are in functions: %+v", asked, symbols)
		}
	}
}

// Addresses of described. Its functions lie in another order than their descriptors.
const (
	describedOPD   = 0x20000
	describedText  = 0x10000
	describedFirst = describedText + 0x40
)

// described is a linked ELFv1 file with two functions and a symbol of data in .opd.
func described(order binary.ByteOrder) elftest.File {
	opd := make([]byte, 3*24)
	order.PutUint64(opd, describedFirst)
	order.PutUint64(opd[24:], describedText)
	order.PutUint64(opd[48:], 0xdead0000) // leads nowhere
	function := func(name string, value uint64) elf.Symbol {
		return elf.Symbol{Name: name, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: 2, Value: value, Size: 0x40}
	}
	return elftest.File{
		Type: elf.ET_EXEC, Machine: elf.EM_PPC64, Order: order,
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: describedText}},
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: describedText, Data: make([]byte, 0x80)},
			{Name: ".opd", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: describedOPD, Data: opd, Align: 8},
		},
		Symbols: []elf.Symbol{
			function("first", describedOPD), function("second", describedOPD+24), function("lost", describedOPD+48),
			function("behind", describedOPD+70), function("before", describedOPD-8), function("far", 1<<63),
		},
	}
}

// checkDescribed looks up the functions, one by one and in an index.
func checkDescribed(t *testing.T, file *File, first, second string) {
	t.Helper()
	x, err := file.Index(IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for v, want := range map[addr.Virt]string{
		describedText: second, describedText + 0x3c: second, describedFirst: first, describedFirst + 0x3c: first,
		describedFirst + 0x40: "", describedOPD: "", describedOPD + 24: "",
	} {
		for _, r := range []Result{file.LookupVirt(v), x.LookupVirt(v), file.LookupVirts([]addr.Virt{v})[0]} {
			got := ""
			if len(r.Frames) == 1 {
				got = r.Frames[0].Linkage
			}
			if got != want {
				t.Errorf("%v: %q, want %q", v, got, want)
			}
		}
	}
}

func TestDescriptors(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.BigEndian, binary.LittleEndian} {
		f := described(order)
		content := f.Build()
		file, err := NewFile(bytes.NewReader(content), "program")
		if err != nil {
			t.Fatal(err)
		}
		checkDescribed(t, file, "first", "second")
		name := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(name, content, 0o666); err != nil {
			t.Fatal(err)
		}
		if order != binary.BigEndian {
			continue // llvm-symbolizer follows no others
		}
		for v, want := range map[string]string{"0x10000": "second", "0x10040": "first"} {
			out, _ := exec.Command(testenv.Tool(t, "llvm-symbolizer-19"), "--output-style=GNU", "--obj="+name, v).Output()
			if got, _, _ := strings.Cut(string(out), "\n"); got != want {
				t.Errorf("llvm-symbolizer says %q of %s, want %s", out, v, want)
			}
		}
	}
}

// TestDescriptorsOfDebugFile: a debug file has no contents of .opd. Its symbols name code
// with those of the program alone, and otherwise nothing.
func TestDescriptorsOfDebugFile(t *testing.T) {
	program, debug := described(binary.BigEndian), described(binary.BigEndian)
	program.Symbols = nil
	size := uint64(len(debug.Sections[1].Data))
	debug.Sections[1].Type, debug.Sections[1].Data, debug.Sections[1].Size = elf.SHT_NOBITS, nil, size
	files := make([]*File, 2)
	for i, f := range []elftest.File{program, debug} {
		var err error
		if files[i], err = NewFile(bytes.NewReader(f.Build()), "file"); err != nil {
			t.Fatal(err)
		}
	}
	alone, err := NewFile(bytes.NewReader(debug.Build()), "alone")
	if err != nil {
		t.Fatal(err)
	}
	checkDescribed(t, alone, "", "")
	checkDescribed(t, Join(files[0], files[1]), "first", "second")
}
