package cli

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/testenv"
)

// TestLacks removes files that hold parts of the debug information of a program: which one is missing is reported once.
func TestLacks(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	if err := os.WriteFile(source, []byte("static inline int in(int n) { return n * n; }\nint main(int c, char **v) { return in(c) + in(c + 1); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := func(name string, args ...string) {
		t.Helper()
		c := exec.Command(testenv.Tool(t, name), args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	tool("gcc", "-O1", "-g", "-gsplit-dwarf", "-o", "split", "a.c")
	tool("gcc", "-O2", "-g", "-o", "common", "a.c")
	tool("cp", "common", "other")
	tool("dwz", "-m", "shared.debug", "common", "other")
	for _, c := range []struct{ program, missing, want string }{
		{"split", "split-a.dwo", "hallmark: incomplete debug information: " + dir + "/split lacks both split.dwp and split-a.dwo, and the names that are there\n"},
		{"common", "shared.debug", "hallmark: incomplete debug information: " + dir + "/common lacks shared.debug, and the names that are there\n"},
	} {
		for _, isThere := range []bool{true, false} {
			if !isThere {
				if err := os.Remove(filepath.Join(dir, c.missing)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no index that was complete
			var stdout, stderr strings.Builder
			e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
			program := filepath.Join(dir, c.program)
			status := run(context.Background(), e, []string{"lookup", program, mainOf(t, program), mainOf(t, program)})
			if status != 0 || !strings.Contains(stdout.String(), "main") {
				t.Errorf("%s: status %d, %s", c.program, status, &stdout)
			}
			if got := strings.Count(stderr.String(), c.want); got == 1 == isThere || isThere && stderr.Len() > 0 {
				t.Errorf("%s, complete: %v:\n%s", c.program, isThere, &stderr)
			}
		}
	}
}

// mainOf returns the file offset of main.
func mainOf(t *testing.T, program string) string {
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
	text := f.Section(".text")
	for _, s := range symbols {
		if s.Name == "main" {
			return fmt.Sprintf("%#x", s.Value-text.Addr+text.Offset)
		}
	}
	t.Fatal("no main")
	return ""
}
