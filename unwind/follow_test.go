package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// runtimeFunctions are those that compilers put into every program, without call frame
// information.
var runtimeFunctions = []string{"_init", "_fini", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux", "frame_dummy", "call_weak_fn"}

// TestRuntimeFunctions wants a rule for every instruction of these functions.
func TestRuntimeFunctions(t *testing.T) {
	for _, command := range []string{
		"gcc -O2 $SRC/live.c -pthread -o $OUT",
		"gcc -O2 -no-pie $SRC/live.c -pthread -o $OUT",
		"gcc -O2 -static $SRC/live.c -pthread -o $OUT",
		"gcc -O2 -static-pie $SRC/live.c -pthread -o $OUT",
		"gcc -O2 -shared -fPIC $SRC/forms.c -o $OUT",
		"gcc -O2 -fuse-ld=gold $SRC/live.c -pthread -o $OUT",
		"clang-19 -O2 $SRC/live.c -pthread -o $OUT",
		"clang-19 -O2 -fuse-ld=lld $SRC/live.c -pthread -o $OUT",
	} {
		t.Run(strings.ReplaceAll(command, "/", " "), func(t *testing.T) {
			file := compile(t, command)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWitness(t, raw, BuildOptions{})
			symbols, err := w.file.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			functions := 0
			for _, s := range symbols {
				if slices.Contains(runtimeFunctions, s.Name) {
					functions++
					checkFollowed(t, w, file, s.Name)
				}
			}
			if functions < 6 {
				t.Errorf("only %d functions", functions)
			}
		})
	}
}

var stackPointerBy = regexp.MustCompile(`^(add|sub) +\$0x([0-9a-f]+),%rsp`)

// checkFollowed counts what the instructions of a function push, in the order in which they
// are: these functions have nothing on the stack behind a jump or a return.
func checkFollowed(t *testing.T, w *witness, file, function string) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "objdump"), "-d", "--no-show-raw-insn", "--disassemble="+function, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	depth, frame, n := int32(8), Same, 0
	for line := range strings.Lines(string(out)) {
		at, code, ok := strings.Cut(strings.TrimSpace(line), ":\t")
		virt, err := strconv.ParseUint(at, 16, 64)
		code = strings.TrimSpace(code)
		if !ok || err != nil {
			continue
		}
		if strings.Contains(code, "nop") || strings.HasPrefix(code, "xchg") || strings.HasPrefix(code, "int3") {
			continue
		}
		n++
		off, _ := w.offset(virt)
		want := stackX86(depth)
		want.Saved[1] = frame
		if got := w.table.Lookup(off); got.Kind != Reg || got.CFA(X86_64) != want.CFA(X86_64) || got.RA != -1 || got.Saved != want.Saved {
			t.Errorf("%s, %s: %+v, want %+v", function, strings.TrimSpace(line), got, want)
		}
		switch by := stackPointerBy.FindStringSubmatch(code); {
		case by != nil:
			bytes, _ := strconv.ParseInt(by[2], 16, 32)
			if by[1] == "add" {
				bytes = -bytes
			}
			depth += int32(bytes)
		case strings.HasPrefix(code, "push"):
			depth, frame = depth+8, int8(-depth/8-1)
		case strings.HasPrefix(code, "pop"):
			depth, frame = depth-8, Same
		case strings.HasPrefix(code, "ret") || strings.HasPrefix(code, "jmp"):
			depth, frame = 8, Same
		}
	}
	if n == 0 {
		t.Errorf("%s has no instructions", function)
	}
}

// TestFollowedCode has code that must have rules, and code that must have none.
func TestFollowedCode(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine elf.Machine
		code    string // in hexadecimal
		want    string // for each byte how far the CFA is, in units of 8 bytes, "." without a rule
	}{
		{"a call", elf.EM_X86_64, "4883ec08 e800000001 4883c408 c3", "1111222222222" + "1"},
		{"what does not return", elf.EM_X86_64, "53 e800000001 0f0b", "........"},
		{"from the middle of a function", elf.EM_X86_64, "4883c001 5b c3", "......"},
		{"two ways that differ", elf.EM_X86_64, "85c0 7401 53 5b c3", "......."},
		{"a register that is not preserved", elf.EM_X86_64, "31db c3 9090909090", "........"},
		{"registers in the wrong order", elf.EM_X86_64, "53 55 5b 5d c3 909090", "........"},
		{"another stack", elf.EM_X86_64, "4889fc c3 90909090", "........"},
		{"a system call, from which two come back", elf.EM_X86_64, "b838000000 0f05 c3", "........"},
		{"a return address that is changed", elf.EM_X86_64, "48890424 c3 909090", "........"},
		{"a loop", elf.EM_X86_64, "53 ffcb 75fc 5b c3 90", "1222221."},
		{"the end of a frame", elf.EM_X86_64, "55 4889e5 53 4883ec18 31db 488b5df8 c9 c3", "................1"}, // behind "leave" it is as a function begins,
		{"_init of arm64", elf.EM_AARCH64, "fd7bbfa9 fd030091 04000094 fd7bc1a8 c0035fd6", "00002222222222220000"},
		{"a frame of arm64 that is not undone", elf.EM_AARCH64, "fd7bbfa9 fd030091 fd7bc2a8 c0035fd6", "................"},
		{"call_weak_fn", elf.EM_AARCH64, "000000b0 00f847f9 400000b4 f4ffff17 c0035fd6", "00000000000000000000"},
		{"a call without a frame", elf.EM_AARCH64, "04000094 c0035fd6", "........"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			raw := codeFile(c.machine, 0, code)
			table := onlySource(t, raw, (*builder).followed)
			file, err := elf.NewFile(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			text := file.Section(".text")
			for i := range text.Size {
				if r := table.Lookup(off(text.Offset + i)); r.Kind == Reg {
					fmt.Fprint(&got, r.Offset/8)
				} else {
					got.WriteByte('.')
				}
			}
			if got.String() != c.want {
				t.Errorf("%s, want %s", &got, c.want)
			}
		})
	}
}
