package symbol

import (
	"cmp"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

const callers = `
#include <stdio.h>
#include <stdlib.h>
struct first { first(); } one;
static volatile int sink;
static inline __attribute__((always_inline)) int leaf(int x) {
	int s = 0;
	for (int i = 0; i < x; i++)
		s += i * sink;
	return s;
}
static inline __attribute__((always_inline)) int middle(int x) {
	if (__builtin_expect(x > 1000, 0)) {
		fprintf(stderr, "big %d\n", x);
		sink = leaf(x + 3);
		abort();
	}
	return leaf(x) +
		leaf(x + 1);
}
first::first() { sink = 3; }
static inline __attribute__((always_inline)) void note(int n) {
	fprintf(stderr, "note %d\n", n);
	fprintf(stderr, "sink %d\n", sink);
}
__attribute__((noinline)) void fail(int x) {
	if (x > 5)
		throw x;
}
__attribute__((noinline)) int outer(int x) {
	int a = x * sink;
	try {
		fail(a);
	} catch (int n) {
		note(n);
	}
	return a +
		middle(x);
}
int main(int argc, char **argv) { return outer(argc); }
`

// TestNamelessCalls compares the frames of calls with those of llvm-symbolizer: where the
// function that was called, or the one that others were inlined into, has no name, and in
// parts of functions that old debug information describes by themselves.
func TestNamelessCalls(t *testing.T) {
	for name, c := range map[string]struct {
		compiler, nameless string
		args               []string
	}{
		"lines":    {"clang++-19", "", []string{"-gline-tables-only"}},
		"lines 4":  {"clang++-19", "", []string{"-gline-tables-only", "-gdwarf-4"}},
		"nameless": {"clang++-19", "middle", []string{"-gline-tables-only"}},
		"leaf":     {"clang++-19", "leaf", []string{"-gline-tables-only"}},
		"g1":       {"g++", "", []string{"-g1"}},
		"dwarf 2":  {"g++", "", []string{"-gdwarf-2", "-freorder-blocks-and-partition"}},
		"strict":   {"g++", "", []string{"-gdwarf-2", "-gstrict-dwarf"}},
	} {
		t.Run(name, func(t *testing.T) {
			if compareWithLLVM(t, buildNameless(t, c.compiler, c.nameless, c.args...)) == 0 {
				t.Error("no call was inlined")
			}
		})
	}
}

// TestWithoutDwz has a program whose common debug information is in a file of dwz that is not
// there. The functions that are described in it have no names, and keep their lines.
func TestWithoutDwz(t *testing.T) {
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		t.Run(version, func(t *testing.T) {
			program := buildNameless(t, "g++", "", version, "-g")
			other, common := program+"-other", program+"-common"
			output(t, nil, "cp", program, other)
			output(t, nil, testenv.Tool(t, "dwz"), "-m", common, program, other)
			if err := os.Remove(common); err != nil {
				t.Fatal(err)
			}
			if compareWithLLVM(t, program) == 0 {
				t.Error("no call was inlined")
			}
			nameless := 0
			f := open(t, program)
			for _, v := range functionAddresses(t, program) {
				r := f.LookupVirt(v)
				if len(r.Frames) > 1 && r.Frames[0].Linkage == "" {
					nameless++
				}
				if n := r.Named(); len(n.Frames) == 0 || n.Frames[0].Linkage == "" || n.Frames[len(n.Frames)-1].Inlined {
					t.Errorf("%v: %+v by names alone", v, n)
				}
			}
			if nameless == 0 {
				t.Error("no inlined call is without a name")
			}
		})
	}
}

// TestWithoutSplitUnits has programs whose split units are not there, neither as files nor in a package. What stayed in
// the program is what there is: lines, the names of symbols, and inlined calls where compilers leave them.
func TestWithoutSplitUnits(t *testing.T) {
	for name, c := range map[string]struct {
		compiler string
		args     []string
		calls    bool // inlined ones are known
	}{
		"gcc":            {"g++", []string{"-g", "-gsplit-dwarf"}, false},
		"gcc 4":          {"g++", []string{"-g", "-gsplit-dwarf", "-gdwarf-4"}, false},
		"clang":          {"clang++-19", []string{"-g", "-gsplit-dwarf", "-fno-split-dwarf-inlining"}, false},
		"clang inlining": {"clang++-19", []string{"-g", "-gsplit-dwarf", "-fsplit-dwarf-inlining"}, true},
		"types":          {"clang++-19", []string{"-g", "-gsplit-dwarf", "-fdebug-types-section", "-fno-split-dwarf-inlining"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			program := buildNameless(t, c.compiler, "", c.args...)
			if inlined := compareWithLLVM(t, program); inlined > 0 != c.calls {
				t.Errorf("%d calls were inlined", inlined)
			}
		})
	}
}

// compareWithLLVM compares the frames at all addresses of the functions of buildNameless, and returns how many of them
// are inlined calls.
func compareWithLLVM(t *testing.T, program string) (inlined int) {
	t.Helper()
	f := open(t, program)
	index, err := open(t, program).Index(IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addresses := functionAddresses(t, program)
	var input strings.Builder
	for _, v := range addresses {
		fmt.Fprintf(&input, "%#x\n", uint64(v))
	}
	answers := output(t, strings.NewReader(input.String()),
		"llvm-symbolizer-19", "--obj="+program, "--no-demangle", "--functions=linkage", "--inlines", "--output-style=JSON")
	batch := f.LookupVirts(addresses)
	for i, v := range addresses {
		want := llvmFrames(t, answers[i])
		inlined += strings.Count(want, "\n") - 1
		for how, r := range map[string]Result{"alone": f.LookupVirt(v), "many": batch[i], "index": index.LookupVirt(v)} {
			if got := frameLines(r.Frames); got != want {
				t.Errorf("%#x %s:\n%swant\n%s", uint64(v), how, got, want)
			}
		}
	}
	return inlined
}

// buildNameless builds the program with a compiler, and takes the name of a function out
// of the debug information if one is given.
func buildNameless(t *testing.T, compiler, nameless string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, assembly, program := filepath.Join(dir, "callers.cc"), filepath.Join(dir, "callers.s"), filepath.Join(dir, "callers")
	if err := os.WriteFile(source, []byte(callers), 0o666); err != nil {
		t.Fatal(err)
	}
	output(t, nil, testenv.Tool(t, compiler), append(args, "-O2", "-S", "-o", assembly, source)...)
	if nameless != "" {
		text, err := os.ReadFile(assembly)
		if err != nil {
			t.Fatal(err)
		}
		without := strings.Replace(string(text), `"`+nameless+`"`, `""`, 1)
		if without == string(text) {
			t.Fatal("the function has no name as it is")
		}
		if err := os.WriteFile(assembly, []byte(without), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	output(t, nil, testenv.Tool(t, compiler), "-o", program, assembly)
	return program
}

// functionAddresses returns each address of the functions of the program's source.
func functionAddresses(t *testing.T, program string) (addresses []addr.Virt) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "_Z5outeri") || s.Name == "main" || strings.HasPrefix(s.Name, "_GLOBAL__sub_I") {
			for v := s.Value; v < s.Value+s.Size; v++ {
				addresses = append(addresses, addr.Virt(v))
			}
		}
	}
	return addresses
}

// llvmFrames returns the frames of an answer, one a line.
func llvmFrames(t *testing.T, text string) string {
	t.Helper()
	var answer struct {
		Symbol []struct {
			FunctionName string
			Line         int
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range answer.Symbol {
		fmt.Fprintf(&b, "%s %d\n", strings.TrimSuffix(f.FunctionName, ".cold"), f.Line)
	}
	return b.String()
}

func frameLines(frames []Frame) string {
	var b strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&b, "%s %d\n", strings.TrimSuffix(cmp.Or(f.Symbol, f.Linkage), ".cold"), f.Line)
	}
	return b.String()
}
