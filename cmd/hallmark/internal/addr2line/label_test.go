package addr2line

import (
	"os"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// TestLabels asks for labels of data in object files and linked files, as LLVM's own tests do.
func TestLabels(t *testing.T) {
	testenv.Tool(t, "clang-19")
	for name, c := range map[string]struct {
		source    string
		args      []string
		addresses []string
	}{
		"data":         {".file \"1.c\"\n.section a,\"a\",@progbits\nb: .long 0, 0\nc: .long 0\n", []string{"-c"}, []string{"0", "3", "7", "8", "11"}},
		"no bytes":     {".file \"1.c\"\n.section a,\"a\",@progbits\nb:\n", []string{"-c"}, []string{"0"}},
		"sized":        {".data\n.type x,@object\nx: .long 0\n.size x,4\n.long 0\n", []string{"-c"}, []string{"0", "3", "4"}},
		"past the end": {"f: ret\n.size f,.-f\ng: nop\n", []string{"-c"}, []string{"0", "1", "2", "5"}},
		"linked": {".globl f\nf: ret\n.section .rodata\nlow: .long 0, 0\nhigh: .long 0\n", []string{"-nostdlib", "-Wl,-e,f", "-Wl,-Ttext=0x400000", "-Wl,--section-start=.rodata=0x500000", "-no-pie"},
			[]string{"0x400000", "0x500000", "0x500007", "0x500008"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(dir, "1.s")
			if err := os.WriteFile(source, []byte(c.source), 0o600); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "file")
			toolOutput(t, "clang-19", append(c.args, "-o", file, source)...)
			args := append([]string{"--obj=" + file}, c.addresses...)
			if got, want := ourAnswer(t, LLVMSymbolizer, "", args...), theirAnswer(t, LLVMSymbolizer, "", args...); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestSuggestions compares what is said of options that nobody knows.
func TestSuggestions(t *testing.T) {
	for _, option := range []string{
		"--inline", "--inlinesx", "--demangl", "--nosuch", "--obk=x", "--obj-x", "--ob=x", "--output-stile=JSON", "--outputstyle=JSON", "--verbos", "--ver", "-q", "--dwpp=x", "--print-addres",
	} {
		if got, want := ourAnswer(t, LLVMSymbolizer, "", option, "0"), theirAnswer(t, LLVMSymbolizer, "", option, "0"); got != want {
			t.Errorf("%s: %q, want %q", option, got, want)
		}
	}
}

// TestNamesInErrors has requests about symbols of files that are not there.
func TestNamesInErrors(t *testing.T) {
	for _, request := range []string{"DATA none.o Z", "FRAME none.o Z", "CODE none.o Z", "none.o Z+3", "none.o 12"} {
		args := []string{"--output-style=JSON", request}
		if got, want := ourAnswer(t, LLVMSymbolizer, "", args...), theirAnswer(t, LLVMSymbolizer, "", args...); got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}
