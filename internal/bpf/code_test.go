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
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// TestProgramCode loads programs and compares: with /proc/kallsyms, what function the
// code of each line is in; with the sources, what is on the line.
func TestProgramCode(t *testing.T) {
	others := map[ebpf.ProgramID]bool{} // whose sources are not these
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		others[id] = true
	}
	newTestSampler(t, Options{})
	programs := heldPrograms(t, others)
	functions := programsInKallsyms(t)
	var inside []addr.Abs // of each function
	for _, f := range functions {
		inside = append(inside, f.start+1)
	}
	code := ReadProgramCode(inside)
	checkNames(t, code, programs, functions)
	checked := 0
	for _, p := range programs {
		checked += checkLinesOf(t, p, code, functions)
	}
	if checked == 0 {
		t.Error("no program has lines")
	}
	for _, l := range code.lines {
		if file, _, ok := code.Line(l.end); ok && !slices.ContainsFunc(code.lines, func(other codeLine) bool { return other.start <= l.end && l.end < other.end }) {
			t.Errorf("%v, behind a function, is of %s", l.end, file)
		}
	}
	if file, line, ok := code.Line(0); ok {
		t.Errorf("0 is %s:%d", file, line)
	}
}

// checkNames compares the names of the functions of programs with those in /proc/kallsyms.
func checkNames(t *testing.T, code *ProgramCode, programs []*ebpf.Program, functions []kallsymsFunction) {
	t.Helper()
	listed := map[addr.Abs]string{}
	for _, f := range functions {
		listed[f.start] = f.name
	}
	more := 0
	for _, p := range programs {
		own, _ := compiled(p.FD())
		more += max(len(own)-1, 0)
		for _, f := range own {
			if name, ok := code.Name(f.end - 1); !ok || name != listed[f.start] {
				t.Errorf("%v is of %q, %v; /proc/kallsyms has %q", f.end-1, name, ok, listed[f.start])
			}
			if alone := ReadProgramCode([]addr.Abs{f.end - 1}); len(alone.functions) != len(own) {
				t.Errorf("for one address %d functions are read, want the %d of its program", len(alone.functions), len(own))
			}
			if name, _ := code.Name(f.end); name == listed[f.start] {
				t.Errorf("%v, behind it, is of %q too", f.end, name)
			}
		}
	}
	if more == 0 {
		t.Error("no program has several functions")
	}
	if name, ok := code.Name(0); ok || len(ReadProgramCode([]addr.Abs{0}).functions) > 0 {
		t.Errorf("0 is of %q", name)
	}
}

// TestLongNames loads programs whose functions have long names, which the kernel cuts in /proc/kallsyms.
func TestLongNames(t *testing.T) {
	testenv.Root(t)
	var programs []*ebpf.Program
	for _, length := range []int{50, 120, 490} { // before Linux 6.1 no name has more than 127 bytes
		proto := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}}
		main := &btf.Func{Name: strings.Repeat("n", length), Type: proto, Linkage: btf.GlobalFunc}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
			btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, 0).WithSymbol("main"), main), asm.Return(),
		}})
		if err != nil {
			t.Logf("a name of %d bytes: %v", length, err)
			continue
		}
		t.Cleanup(func() { p.Close() })
		programs = append(programs, p)
	}
	listed := map[addr.Abs]string{}
	for _, f := range programsInKallsyms(t) {
		listed[f.start] = f.name
	}
	named := 0
	for _, p := range programs {
		own, _ := compiled(p.FD())
		for _, f := range own {
			name, ok := ReadProgramCode([]addr.Abs{f.start}).Name(f.start)
			if ok && name != listed[f.start] {
				t.Errorf("%v is of %q; /proc/kallsyms has %q", f.start, name, listed[f.start])
			}
			if ok {
				named++
			}
		}
	}
	if named == 0 {
		t.Error("no program has a name")
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
func checkLinesOf(t *testing.T, p *ebpf.Program, code *ProgramCode, functions []kallsymsFunction) int {
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
		file, line, ok := code.Line(addr.Abs(places[i]))
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
