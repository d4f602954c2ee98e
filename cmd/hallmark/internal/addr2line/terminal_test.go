package addr2line

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/plaintext"
	"hallmark/internal/testenv"
)

// TestTerminal has a symbol that a terminal would execute, and that would end an answer.
func TestTerminal(t *testing.T) {
	const name = "work\x1b[2J\u009b2J\u202e\nforged"
	objcopy := testenv.Tool(t, "objcopy")
	source := build(t, "inlines.c", "gcc", "-O2")
	at := symbolAddress(t, source, "work")
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command(objcopy, "--redefine-sym", "work="+name, source, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range []Program{GNU, LLVMAddr2line, LLVMSymbolizer} {
		for _, args := range []string{"-f -e", "-p -f -e", "-f -a -e"} {
			for _, isTerminal := range []bool{false, true} {
				got := answer(p, isTerminal, append(strings.Fields(args), program, at)...)
				if strings.Contains(got, "\nforged") {
					t.Errorf("%s %s: a line is forged: %+q", p, args, got)
				}
				if want := strings.ReplaceAll(name, "\n", "?"); !isTerminal && !strings.Contains(got, want) {
					t.Errorf("%s %s: no %+q in %+q", p, args, want, got)
				}
				plain := true
				for line := range strings.SplitSeq(got, "\n") {
					plain = plain && plaintext.Line(line) == line
				}
				if isTerminal && (!plain || !strings.Contains(got, "work\uFFFD[2J")) {
					t.Errorf("%s %s: a terminal gets %+q", p, args, got)
				}
			}
		}
	}
}

// answer returns what a program prints.
func answer(p Program, isTerminal bool, args ...string) string {
	var out, problems bytes.Buffer
	Run(context.Background(), p, p.String(), args, World{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems, Terminal: isTerminal,
		Getenv: func(string) string { return "" },
	})
	return out.String() + problems.String()
}
