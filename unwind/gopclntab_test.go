package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// buildGo builds testdata/gostacks and returns the program's path.
func buildGo(t testing.TB, env []string, flags ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gostacks")
	cmd := exec.Command("go", append(append([]string{"build", "-o", name}, flags...), ".")...)
	cmd.Dir = filepath.Join("testdata", "gostacks")
	cmd.Env = append(append(os.Environ(), "GOFLAGS=", "GO111MODULE=off", "GOTOOLCHAIN=local"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

// goRow is what llvm-dwarfdump says of the CFA from an address of a program on.
type goRow struct {
	virt uint64
	cfa  string // "RSP+8"
	last bool   // of its function
}

// debugFrame returns the rows of a program's .debug_frame that are in a pclntab too: not
// those of C.
func debugFrame(t *testing.T, name string) (rows []goRow) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "llvm-dwarfdump-19"), "--debug-frame", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	end := uint64(0)
	for lines.Scan() {
		line := lines.Text()
		if m := llvmFunction.FindStringSubmatch(line); m != nil {
			end = number(t, m[3])
			continue
		}
		if m := llvmRow.FindStringSubmatch(line); m != nil {
			cfa, _, _ := strings.Cut(m[2], ":")
			rows = append(rows, goRow{virt: number(t, m[1]), cfa: cfa, last: number(t, m[1])+1 >= end})
		}
	}
	return rows
}

// functionsOf returns the names of functions by address, from a symbol table.
func functionsOf(t *testing.T, f *elf.File) func(virt uint64) string {
	t.Helper()
	symbols, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	return func(virt uint64) string {
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && virt-s.Value < s.Size {
				return s.Name
			}
		}
		return ""
	}
}

// switchers are the functions of the runtime in which the list of stack depths, and so
// .debug_frame, is wrong somewhere: they write the stack pointer.
var switchers = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`asmcgocall asmcgocall_no_g systemstack mcall morestack gogo cgocallback clone
		nanotime1 walltime vgetrandom1 callCgoMmap callCgoMunmap callCgoSigaction switchToCrashStack0 sigreturn__sigaction`) {
		switchers["runtime."+name] = true
	}
	switchers["gogo"] = true
	switchers["time.now"] = true
	switchers["syscall.rawVforkSyscall"] = true // keeps the return address in a register
}

// injectedARM64 are functions whose callers' registers no rule can say on arm64, and one
// that is marked so that nobody goes beyond it.
var injectedARM64 = map[string]bool{
	"runtime.sigpanic": true, "runtime.asyncPreempt": true, "runtime.debugCallV2": true, "runtime.morestack_noctxt": true,
}

// TestGoRowsAreDebugFrames compares the rows made of pclntab with llvm-dwarfdump's of
// .debug_frame, for programs of all kinds and both machines.
func TestGoRowsAreDebugFrames(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	for _, c := range []struct {
		name  string
		env   []string
		flags []string
	}{
		{"pure", []string{"CGO_ENABLED=0"}, nil},
		{"pie", []string{"CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
		{"cgo", []string{"CGO_ENABLED=1"}, nil},
		{"cgo, pie", []string{"CGO_ENABLED=1"}, []string{"-buildmode=pie"}},
		{"arm64", []string{"CGO_ENABLED=0", "GOARCH=arm64"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "cgo") {
				testenv.Tool(t, "gcc")
			}
			compareGo(t, buildGo(t, c.env, c.flags...))
		})
	}
	t.Run("hallmark", func(t *testing.T) {
		if !testenv.Thorough() {
			t.Skip("it is large")
		}
		name := filepath.Join(t.TempDir(), "hallmark")
		if out, err := exec.Command("go", "build", "-o", name, "hallmark/cmd/hallmark").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		compareGo(t, name)
	})
}

// compareGo compares a program with its .debug_frame.
func compareGo(t *testing.T, name string) {
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, raw, BuildOptions{})
	rows := debugFrame(t, name)
	nameOf := functionsOf(t, w.file)
	counts := map[string]int{}
	for _, row := range rows {
		off, ok := w.offset(row.virt)
		if !ok || row.last {
			continue
		}
		r := w.table.Lookup(off)
		switch got := goCFA(&r); {
		case r.Source() != Pclntab:
			counts["other source"]++
		case got == row.cfa:
			counts["same"]++
		case r.Kind == Outermost || r.Kind == None || r.Flags&OtherStack != 0 || r.Kind == Signal:
			function := nameOf(row.virt)
			counts["switch of stacks"]++
			known := strings.TrimSuffix(function, ".abi0")
			if r.Kind != Outermost && !switchers[known] && !(w.machine == ARM64 && injectedARM64[known]) {
				t.Errorf("%#x in %s is %+v, and %s in .debug_frame", row.virt, function, r, row.cfa)
			}
		default:
			t.Errorf("%#x in %s is %+v, and %s in .debug_frame", row.virt, nameOf(row.virt), r, row.cfa)
		}
	}
	if counts["same"] < 1000 || counts["same"] < 50*counts["switch of stacks"] {
		t.Error("too few rows are the same")
	}
	t.Logf("%v; %d rows, %d rules, %.2f bytes a row", counts, w.table.Rows(), w.table.Rules(), float64(len(w.table.Bytes()))/float64(w.table.Rows()))
}

// goCFA writes the CFA of a rule as llvm-dwarfdump does.
func goCFA(r *Rule) string {
	register := map[Register]string{RSP: "RSP", RBP: "RBP", SP: "WSP", X29: "W29"}[r.Register]
	switch {
	case r.Kind != Reg || r.Flags&OtherStack != 0:
		return ""
	case r.Offset == 0:
		return register
	}
	return register + "+" + strconv.Itoa(int(r.Offset))
}
