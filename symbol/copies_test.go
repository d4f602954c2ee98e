package symbol

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
)

// thunked is a program with a function that two units can have, and a thunk beside it.
const thunked = `
int count;
struct first { virtual int f(int n) { return n; } int x; };
struct second { virtual int g(int n) { return n; } int y; };
struct both : first, second { int g(int n) override { return count += n * 7; } };
int __attribute__((noinline)) call(second *s, int n) { return s->g(n); }
int main(int n, char **) { both b; return call(&b, n); }
`

// thunkFirst is the section %[1]s with the thunk %[3]s, of %[4]d bytes, before the
// function %[2]s, in a unit that has lines and no functions.
const thunkFirst = `
	.file 1 "first.s"
	.section %[1]s,"axG",%%progbits,%[2]s,comdat
	.weak %[3]s, %[2]s
	.type %[3]s, %%function
	.type %[2]s, %%function
%[3]s:
	.loc 1 7
	.rept %[4]d
	nop
	.endr
	.size %[3]s, .-%[3]s
%[2]s:
	nop
	.size %[2]s, .-%[2]s
.Lend:
	.section .debug_info,"",%%progbits
	.4byte 2f-1f
1:	.2byte 4
	.4byte .debug_abbrev
	.byte 8
	.uleb128 1
	.8byte %[3]s, .Lend-%[3]s
	.4byte .debug_line
2:
	.section .debug_abbrev,"",%%progbits
	.uleb128 1, 0x11, 0, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0, 0 # unit; low_pc, high_pc, stmt_list
	.section .debug_line,"",%%progbits
	.section .note.GNU-stack,"",%%progbits
`

// TestCopyThrownAway has two copies of code of the same size, in which a thunk and its
// function come in another order. GNU ld keeps the first, and makes the debug information
// of the second speak of it, too: the function is not where that says.
func TestCopyThrownAway(t *testing.T) {
	const function, thunk, section = "_ZN4both1gEi", "_ZThn16_N4both1gEi", ".text._ZN4both1gEi"
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) string {
		if err := os.WriteFile(path(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	run(t, "g++", "-g", "-O1", "-fno-ipa-cp", "-fno-devirtualize", "-c", "-o", path("second.o"), write("second.cc", thunked))
	object, err := elf.Open(path("second.o"))
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	first := write("first.s", fmt.Sprintf(thunkFirst, section, function, thunk, object.Section(section).Size-1))
	run(t, "gcc", "-c", "-o", path("first.o"), first)
	run(t, "g++", "-fuse-ld=bfd", "-o", path("program"), path("first.o"), path("second.o"))

	f, x := openWhole(t, path("program")), index(t, path("program"))
	symbols, err := f.ELFSymbols()
	if err != nil {
		t.Fatal(err)
	}
	at := addr.Virt(0)
	for _, s := range symbols {
		if s.Name == thunk {
			at = s.Virt
		}
	}
	for name, r := range map[string]Result{"file": f.LookupVirt(at), "index": x.LookupVirt(at), "many": f.LookupVirts([]addr.Virt{at})[0]} {
		if len(r.Frames) != 1 || r.Frames[0].Linkage != thunk || !strings.HasSuffix(r.Frames[0].File, "first.s") {
			t.Errorf("%s: %v is %+v", name, at, r)
		}
	}
	conform(t, x, f, 1000)
}
