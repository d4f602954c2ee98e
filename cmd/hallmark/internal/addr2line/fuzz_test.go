package addr2line

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/elftest"
)

// tiny is a file with a function and data.
func tiny(t testing.TB) string {
	t.Helper()
	file := elftest.File{
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Data: make([]byte, 64)},
			{Name: ".data", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: 0x2000, Data: make([]byte, 64)},
		},
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text"}},
		Symbols: []elf.Symbol{
			{Name: "_Z4workILi1EEvi", Info: byte(elf.STT_FUNC), Section: 1, Value: 0x1000, Size: 32},
			{Name: "data", Info: byte(elf.STT_OBJECT), Section: 2, Value: 0x2000, Size: 8},
		},
	}
	name := filepath.Join(t.TempDir(), "tiny")
	if err := os.WriteFile(name, file.Build(), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// FuzzProtocol sends anything to the programs: every line must get one answer.
func FuzzProtocol(f *testing.F) {
	name := tiny(f)
	f.Chdir(f.TempDir())
	for _, s := range []string{
		"0x1000\n", "1000\n\n2000", "work+4\n+5\n", "DATA 0x2000\nFRAME 0\nCODE 0x1004\r\n", "FILE:x 1\nBUILDID:ab 1\n", "\"x\" 1\n'x 1\n",
		strings.Repeat("f", 200) + "\n", strings.Repeat("z ", 2000), "\x00\n\xff\xfe 1\n", "data+0b11\n_Z4workILi1EEvi+1_0\n", "x:x86_64 0x1\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		for p, c := range map[Program]struct {
			args    []string
			longest int
			answer  string // what every answer ends with, and nothing else has
		}{
			GNU:            {[]string{"-e", name}, longestGNULine, "\n"},
			LLVMAddr2line:  {[]string{"-e", name, "--functions=none"}, longestLLVMLine, ""},
			LLVMSymbolizer: {[]string{"-e", name, "--functions=none"}, longestLLVMLine, "\n\n"},
		} {
			out, _ := converse(p, c.args, input)
			if want := countLines(input, c.longest); c.answer != "" && strings.Count(out, c.answer) != want {
				t.Errorf("%s: %q has %d lines, and got\n%q", p, input, want, out)
			}
		}
		converse(LLVMSymbolizer, []string{"--output-style=JSON"}, input)
	})
}

// converse runs a program on an input.
func converse(p Program, args []string, input string) (string, int) {
	var out bytes.Buffer
	status := Run(context.Background(), p, "x", args, World{
		Stdin: strings.NewReader(input), Stdout: &out, Stderr: new(bytes.Buffer), Getenv: func(string) string { return "" },
	})
	return out.String(), status
}

// countLines returns how often fgets reads something that is not longer than longest.
func countLines(input string, longest int) int {
	n := 0
	for line := range strings.Lines(input) {
		n += (len(line) + longest - 1) / longest
	}
	return n
}

// FuzzOptions gives anything as arguments, one a line: the programs must say what is
// wrong and end, and what they take for addresses must be among the arguments.
func FuzzOptions(f *testing.F) {
	f.Chdir(f.TempDir())
	for _, s := range []string{
		"-afie\nx\n1", "--exe=x\n--\n-1", "-j", "--se\n.text", "--re", "-Cfoo", "--demangle=rust\n-b\nelf64-x86-64",
		"--obj=x\n--functions=short\n1", "-apfCsi\n-e=x", "-inlines", "--adjust-vma\n0x1\n--build-id=ab", "--output-style=JSON", "-\n--\n-h", "@x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		known := map[string]bool{}
		for _, arg := range args {
			known[arg] = true
		}
		gnu, _ := parseGNU(args)
		llvm, _ := parseLLVM(LLVMSymbolizer, args)
		for _, number := range append(gnu.numbers, llvm.requests...) {
			if !known[number] {
				t.Errorf("%q has no address %q", args, number)
			}
		}
	})
}

// FuzzResponseFile splits anything into words. What has neither quotes nor backslashes
// is split at blanks.
func FuzzResponseFile(f *testing.F) {
	for _, s := range []string{"-a -e prog 1", "'a b' \"c\\\"d\" \\ ", "\t\n", "''"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := splitWords(text)
		if strings.ContainsAny(text, `'"\`) {
			return
		}
		want := strings.FieldsFunc(text, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) })
		if strings.Join(words, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("%q has words %q, want %q", text, words, want)
		}
	})
}

// FuzzDemangling reads anything as a mangled name. A few bytes must not become
// gigabytes.
func FuzzDemangling(f *testing.F) {
	for _, s := range []string{
		"_ZN4shop5shelfINS_4itemELi2EE3putIJNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEdEEEvDpOT_", "_ZN3fooEv.cold",
		"_RNvCs1234_7mycrate3foo", "_ZN4core3fmt5Write9write_str17h0123456789abcdefE", "_ZNK1AcvT_IiEEv", "_Z1fIJEEvDpT_",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, readable := range []demangler{demangleGNU, demangleLLVM, shortName} {
			if s := readable(name); len(s) > max(len(name), 1<<(maxDemangled+1)) {
				t.Errorf("%q becomes %d bytes", name, len(s))
			}
		}
	})
}
