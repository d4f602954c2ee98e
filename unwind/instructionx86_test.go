package unwind

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestInstructionsAreObjdumps compares the lengths of all instructions of files, and
// which of them write the frame pointer or the stack pointer, with objdump.
func TestInstructionsAreObjdumps(t *testing.T) {
	if testenv.Brief() {
		return // there is one goroutine
	}
	objdump := testenv.Tool(t, "objdump")
	files, err := filepath.Glob("/usr/lib/x86_64-linux-gnu/libcrypto.so.?")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, buildGo(t, []string{"CGO_ENABLED=0"}))
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			cmd := exec.Command(objdump, "-d", "-w", "-z", "-j.text", name)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			n, bad, writers := 0, 0, 0
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				parts := strings.Split(lines.Text(), "\t")
				if len(parts) < 3 || strings.Contains(parts[2], "(bad)") {
					continue
				}
				code := hexBytes(t, parts[1])
				i := decodeX86(append(code, make([]byte, 8)...))
				n++
				if i.size != len(code) {
					bad++
					continue
				}
				for reg, names := range map[byte][]string{x86RBP: {"%rbp", "%ebp"}, x86RSP: {"%rsp"}} {
					if !writesLast(parts[2], names) {
						continue
					}
					writers++
					if !i.writes(reg) {
						t.Errorf("%s does not write %s: % x %s", parts[0], names[0], code, parts[2])
					}
				}
			}
			t.Logf("%d instructions, %d of another length, %d that write", n, bad, writers)
			if bad*500 > n { // libcrypto has tables among its code
				t.Errorf("%d of %d instructions have another length", bad, n)
			}
			if writers < 100 {
				t.Error("too few write")
			}
		})
	}
}

// writesLast reports whether the last operand of an instruction is one of the registers,
// and it is written: it is not in instructions that only compare, or push.
func writesLast(text string, names []string) bool {
	text, _, _ = strings.Cut(text, "#")
	text, _, _ = strings.Cut(text, "<")
	mnemonic, operands, _ := strings.Cut(strings.TrimSpace(text), " ")
	for _, reader := range []string{"cmp", "test", "push", "bt", "call", "jmp", "mul", "imul", "div", "idiv", "ucom", "nop", "pop", "ud"} {
		if strings.HasPrefix(mnemonic, reader) {
			return false
		}
	}
	operands = strings.TrimSpace(operands)
	for _, name := range names {
		if operands == name || strings.HasSuffix(operands, ","+name) {
			return true
		}
	}
	return false
}

func hexBytes(t *testing.T, s string) (b []byte) {
	t.Helper()
	for _, w := range strings.Fields(s) {
		n, err := strconv.ParseUint(w, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, byte(n))
	}
	return b
}
