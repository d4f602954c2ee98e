package symbol

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"hallmark/internal/symtab"
	"hallmark/internal/testenv"
)

// TestFunctionsAgreeWithReadelf compares the functions of programs with those that
// readelf lists, in .symtab or in .dynsym.
func TestFunctionsAgreeWithReadelf(t *testing.T) {
	for name, flag := range map[string]string{testenv.Tool(t, "go"): "-s", testenv.Tool(t, "gcc"): "--dyn-syms"} {
		file, err := OpenFile(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		functions, err := file.Functions()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, f := range functions {
			got[fmt.Sprintf("%#x %d %s", uint64(f.Virt), f.Size, f.Name)] = true
		}
		want := readelfFunctions(t, name, flag)
		if len(want) == 0 {
			t.Errorf("%s: readelf lists no functions", name)
		}
		for _, line := range want {
			if !got[line] {
				t.Fatalf("%s: readelf has %s", name, line)
			}
		}
	}
}

// readelfFunctions returns the functions with a size.
func readelfFunctions(t *testing.T, name, flag string) []string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "readelf"), flag, "-W", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[3] != "FUNC" || f[6] == "UND" || f[2] == "0" {
			continue
		}
		var virt, size uint64
		fmt.Sscanf(f[1], "%x", &virt)
		fmt.Sscan(f[2], &size)
		all = append(all, fmt.Sprintf("%#x %d %s", virt, size, symtab.Unversioned(strings.Join(f[7:], " "))))
	}
	return all
}
