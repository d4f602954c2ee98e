package bpf

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// TestCodeLines loads programs and compares: with /proc/kallsyms, what function the
// code of each line is in; with the sources, what is on the line.
func TestCodeLines(t *testing.T) {
	others := map[ebpf.ProgramID]bool{} // whose sources are not these
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		others[id] = true
	}
	newTestSampler(t, Options{})
	programs := heldPrograms(t, others)
	code := ReadCodeLines()
	functions := programsInKallsyms(t)
	checked := 0
	for _, p := range programs {
		checked += checkLinesOf(t, p, code, functions)
	}
	if checked == 0 {
		t.Error("no program has lines")
	}
	for _, l := range code.lines {
		if file, _, ok := code.Find(l.end); ok && !slices.ContainsFunc(code.lines, func(other codeLine) bool { return other.start <= l.end && l.end < other.end }) {
			t.Errorf("%v, behind a function, is of %s", l.end, file)
		}
	}
	if file, line, ok := code.Find(0); ok {
		t.Errorf("0 is %s:%d", file, line)
	}
}

// heldPrograms returns the programs that are loaded but for the others. They stay loaded until
// the test ends.
func heldPrograms(t *testing.T, others map[ebpf.ProgramID]bool) (programs []*ebpf.Program) {
	t.Helper()
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		if others[id] {
			continue
		}
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			t.Cleanup(func() { p.Close() })
			programs = append(programs, p)
		}
	}
	return programs
}

// checkLinesOf checks the lines of one program, and returns how many it has.
func checkLinesOf(t *testing.T, p *ebpf.Program, code *CodeLines, functions []kallsymsFunction) int {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := info.LineInfos()
	if err != nil {
		return 0 // without lines
	}
	own, err := info.FuncInfos()
	if err != nil {
		t.Fatal(err)
	}
	places, _ := info.JitedLineInfos()
	for i, l := range lines {
		f := own[0]
		for _, other := range own {
			if other.Offset <= l.Offset {
				f = other
			}
		}
		at, _ := slices.BinarySearchFunc(functions, addr.Abs(places[i])+1, func(f kallsymsFunction, a addr.Abs) int {
			return cmp.Compare(f.start, a)
		})
		if at == 0 || !strings.HasSuffix(functions[at-1].name, "_"+f.Func.Name) {
			t.Errorf("%#x is not in %s", places[i], f.Func.Name)
		}
		file, line, ok := code.Find(addr.Abs(places[i]))
		if i+1 < len(places) && places[i+1] == places[i] {
			continue // without code
		}
		if text := sourceLine(t, file, line); !ok || text != "" && text != strings.TrimSpace(l.Line.Line()) {
			t.Errorf("%#x is %s:%d, %q, not %q", places[i], file, line, text, l.Line.Line())
		}
	}
	return len(lines)
}

// sourceLine returns a line of a source file of this package, "" of any other.
func sourceLine(t *testing.T, file string, line int) string {
	t.Helper()
	if filepath.Dir(file) != "c" {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(text), "\n")
	if line < 1 || line > len(lines) {
		t.Errorf("%s has no line %d", file, line)
		return ""
	}
	return strings.TrimSpace(lines[line-1])
}

// kallsymsFunction is a function of a BPF program.
type kallsymsFunction struct {
	start addr.Abs
	name  string
}

// programsInKallsyms returns the functions of BPF programs in the order of addresses.
func programsInKallsyms(t *testing.T) (functions []kallsymsFunction) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kind string
		var fn kallsymsFunction
		if !strings.HasSuffix(lines.Text(), "\t[bpf]") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x %s %s", &fn.start, &kind, &fn.name); err != nil {
			t.Fatal(err)
		}
		functions = append(functions, fn)
	}
	testenv.Need(t, len(functions) > 0 && functions[0].start != 0, "programs in /proc/kallsyms: net.core.bpf_jit_enable, root")
	slices.SortFunc(functions, func(a, b kallsymsFunction) int { return cmp.Compare(a.start, b.start) })
	return functions
}
