package symbol

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hallmark/addr"
	"hallmark/reason"
)

const bareNeighbours = `
volatile int sink;
__attribute__((noinline)) int first(int n) { return n * sink; }
__attribute__((noinline)) int second(int n) { return n + sink; }
int unnamed(int);
int main(int n, char **v) { return first(n) + second(n) + unnamed(n); }
`

// bareCode is code without a symbol of its own, data in its midst, and a function
// that only its symbol names. What unnamed covers ends before the code behind it.
const bareCode = `
	.text
	.globl unnamed
	.type unnamed, @function
unnamed:
	lea 1(%rdi), %eax
	jmp .Lrest
	.size unnamed, . - unnamed
	.balign 32
.Lrest:
	add $3, %eax
	ret
	.balign 16
	.quad 0x1122334455667788
	nop
`

// TestLinesWithoutNames compares all addresses of the code of programs with what
// llvm-symbolizer says: also those where it knows the line and no name.
func TestLinesWithoutNames(t *testing.T) {
	for name, args := range map[string][]string{
		"gcc":      {"gcc", "-g"},
		"stripped": {"gcc", "-g", "-Wl,--strip-all"}, // the debug information alone
		"dwarf 4":  {"gcc", "-gdwarf-4"},
		"sections": {"gcc", "-g", "-ffunction-sections", "-Wl,--gc-sections"},
		"clang":    {"clang-19", "-g"},
		"lld":      {"clang-19", "-g", "-fuse-ld=lld", "-ffunction-sections", "-Wl,--gc-sections"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := buildUnnamed(t, args[0], slices.DeleteFunc(args[1:], func(arg string) bool { return arg == "-Wl,--strip-all" }))
			if name == "stripped" {
				output(t, nil, "objcopy", "--strip-all", "--keep-section=.debug*", program)
			}
			f, x := openWhole(t, program), index(t, program)
			conform(t, x, f, 3000)
			s := f.image.Section(".text")
			var addresses []addr.Virt
			for v := s.Addr; v < s.Addr+s.Size; v++ {
				addresses = append(addresses, addr.Virt(v))
			}
			facts, bare := readelf(t, program), 0
			batch := openWhole(t, program).LookupVirts(addresses)
			for i, answer := range llvm(t, program, addresses) {
				if answer[0].line == 0 {
					continue // nothing is known but a symbol, or no line
				}
				v := addresses[i]
				if answer[0].function == "??" {
					bare++
				}
				for how, r := range map[string]Result{"alone": f.LookupVirt(v), "many": batch[i], "index": x.LookupVirt(v)} {
					if diff := answer.compare(r.Frames, facts.aliasesAt(v)); diff != "" || r.Source != SourceDWARF {
						t.Errorf("%v %s, from %v: %s", v, how, r.Source, diff)
					}
					if named := r.Named(); (answer[0].function == "??") != (named.Reason == reason.NoSymbol) {
						t.Errorf("%v %s: %+v", v, how, named)
					}
				}
			}
			if bare < 20 {
				t.Errorf("%d lines without names", bare)
			}
		})
	}
}

// buildUnnamed builds a program with code between its functions.
func buildUnnamed(t *testing.T, compiler string, args []string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.c": bareNeighbours, "b.s": bareCode} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "prog")
	args = append(slices.Clone(args), "-O1", "-falign-functions=64", "-o", program, filepath.Join(dir, "a.c"), filepath.Join(dir, "b.s"))
	output(t, nil, compiler, args...)
	return program
}

// TestNearSymbolNamesNoLine wants no name of a neighbour beside a line, and the name of
// the symbol whose size covers the address.
func TestNearSymbolNamesNoLine(t *testing.T) {
	program := buildUnnamed(t, "gcc", []string{"-g"})
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "unnamed" })
	start, end := addr.Virt(symbols[i].Value), addr.Virt(symbols[i].Value+symbols[i].Size)
	f, x := openWhole(t, program), index(t, program)
	for v, want := range map[addr.Virt]string{start: "unnamed b.s:6", end - 1: "unnamed b.s:7", end: " b.s:7", (end + 31) &^ 31: " b.s:11"} {
		for how, r := range map[string]Result{"file": f.LookupVirt(v), "index": x.LookupVirt(v)} {
			if len(r.Frames) != 1 {
				t.Fatalf("%v of the %s: %+v", v, how, r)
			}
			frame := r.Frames[0]
			if got := fmt.Sprintf("%s %s:%d", cmp.Or(frame.Symbol, frame.Func), filepath.Base(frame.File), frame.Line); got != want {
				t.Errorf("%v of the %s is %s, want %s", v, how, got, want)
			}
		}
	}
}
