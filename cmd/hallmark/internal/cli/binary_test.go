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

	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/testenv"
)

// heapOf writes a heap profile as gperftools does, whose stack is a function that another has called, and returns its
// path. The file of the program is at path.
func heapOf(t *testing.T, path string, leaf, caller uint64) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := fmt.Sprintf("heap profile: 2: 2048 [ 4: 4096] @ heapprofile\n 2: 2048 [ 4: 4096] @ %#x %#x\n\nMAPPED_LIBRARIES:\n", leaf, caller)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			start, end := p.Vaddr&^4095, (p.Vaddr+p.Memsz+4095)&^4095
			text += fmt.Sprintf("%08x-%08x r-xp %08x 08:01 77 %s\n", start, end, p.Off&^4095, path)
		}
	}
	name := filepath.Join(t.TempDir(), "heap.prof")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestNamedFiles names the files of profiles that have no identities: of gperftools, and of folded stacks.
func TestNamedFiles(t *testing.T) {
	testenv.Tool(t, "gcc")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	c := exec.Command("gcc", "-O1", "-no-pie", "-x", "c", "-o", prog, "-")
	c.Stdin = strings.NewReader("volatile int g;\n__attribute__((noipa)) int leaf(int x) { return x * 3 + g; }\n__attribute__((noipa)) int caller(int x) { return leaf(x) + 1; }\nint main(int c, char **v) { return caller(c); }\n")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	text := f.Section(".text")
	offset := at["leaf"] - text.Addr + text.Offset
	heap := heapOf(t, prog, at["leaf"]+3, at["caller"]+3)
	folded := filepath.Join(dir, "x.folded")
	if err := os.WriteFile(folded, fmt.Appendf(nil, "outer;[prog+%#x] 5\n", offset), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     []string
		status   int
		has, not string
	}{
		{[]string{"report", heap}, 0, "prog [unknown]", "leaf"},
		{[]string{"report", "--binary", prog, heap}, 0, "leaf", "[unknown]"},
		{[]string{"report", "--binary", prog, heap}, 0, "without proof, " + prog + " is taken for the " + prog, "[unknown]"},
		{[]string{"report", "--trust-paths", heap}, 0, "caller", "[unknown]"},
		{[]string{"report", "--binary", prog, folded}, 0, "leaf", "prog [unknown]"},
		{[]string{"report", "--trust-paths", folded}, 0, "outer", "leaf"}, // it has no path
		{[]string{"convert", "--format", "folded", "-o", "-", "--binary", prog, heap}, 0, "caller;leaf", "[unknown]"},
		{[]string{"report", "--binary", other, heap}, 2, "has no file that is called other", "leaf"},
		{[]string{"report", "--binary", dir + "/none", heap}, 1, "none: no such file", "leaf"},
	} {
		var stdout, stderr strings.Builder
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		status := run(context.Background(), e, c.args)
		out := stdout.String() + stderr.String()
		if status != c.status || !strings.Contains(out, c.has) || strings.Contains(out, c.not) {
			t.Errorf("%q: status %d, want %d, %q and no %q in\n%s", c.args, status, c.status, c.has, c.not, out)
		}
	}

	v := viewer{env: &verb.Env{}}
	flags := pflag.NewFlagSet("view", pflag.ContinueOnError)
	v.input.AddFlags(flags)
	v.input.DebugPaths = &v.symbols.Extra
	if err := flags.Parse([]string{"--binary", prog}); err != nil {
		t.Fatal(err)
	}
	if err := v.input.Believe(); err != nil {
		t.Fatal(err)
	}
	p, _, err := v.read(heap)
	if err != nil {
		t.Fatal(err)
	}
	if p.Mappings()[0].BuildID == "" || len(p.Comments()) != 1 || len(v.symbols.Extra) != 1 {
		t.Errorf("mapping %+v, comments %q, files %q", p.Mappings()[0], p.Comments(), v.symbols.Extra)
	}
}

// TestViewComparison reads folded stacks with two counts for pages.
func TestViewComparison(t *testing.T) {
	name := filepath.Join(t.TempDir(), "two.folded")
	if err := os.WriteFile(name, []byte("main;foo 10 20\nmain;gone 7 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := viewer{env: &verb.Env{}}
	p, o, err := v.read(name)
	if err != nil || o.Base == nil {
		t.Fatal(o.Base, err)
	}
	if p.Samples() != 1 || p.Value(0, 0) != 20 || o.Base.Samples() != 2 || o.Base.Value(0, 0)+o.Base.Value(1, 0) != 17 {
		t.Errorf("%d samples, before %d", p.Samples(), o.Base.Samples())
	}
}
