package capture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/testenv"
	"hallmark/profile"
)

// buildRewrite builds testdata/rewrite.c: the program, or one whose functions are in a library.
func buildRewrite(t testing.TB, library bool) (program, file string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "rewrite")
	flags := []string{"-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"}
	if !library {
		compile(t, "gcc", program, append(flags, "testdata/rewrite.c")...)
		return program, program
	}
	file = filepath.Join(dir, "librewrite.so")
	compile(t, "gcc", file, append(flags, "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Dmain=body", "testdata/rewrite.c")...)
	stub := filepath.Join(dir, "main.c")
	source := "int body(int, char **);\nint main(int n, char **v) { return body(n, v); }\n"
	if err := os.WriteFile(stub, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	compile(t, "gcc", program, append(flags, stub, file, "-Wl,-rpath,"+dir)...)
	return program, file
}

// TestRewrittenPages wants a page that a process has rewritten in its memory to lose the identity
// of the file, in that process alone, and no other page to lose it.
func TestRewrittenPages(t *testing.T) {
	for name, c := range map[string]struct {
		long    bool // one of the long form
		library bool
		args    []string
	}{
		"before":         {false, false, []string{"before"}},
		"during":         {true, false, []string{"during", "1500"}},
		"library before": {true, true, []string{"before"}},
		"library during": {false, true, []string{"during", "1500"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.long && !testenv.Thorough() {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			eachBackend(t, func(t *testing.T, b Backend) { recordRewritten(t, b, c.library, c.args) })
		})
	}
}

func recordRewritten(t *testing.T, backend Backend, library bool, args []string) {
	program, file := buildRewrite(t, library)
	patcher := start(t, append([]string{program}, args...)...)
	other := start(t, program, "never")
	time.Sleep(50 * time.Millisecond)
	p, _, _ := recordSession(t, context.Background(),
		Options{Backend: backend, PIDs: []int{patcher, other}, Duration: 3 * time.Second})
	counts := leaves(p)
	want := fileID(t, file).String()
	t.Log(counts)
	for _, in := range []string{
		fmt.Sprintf("%d [rewritten] %s", patcher, file),
		fmt.Sprintf("%d kept %s", patcher, want),
		fmt.Sprintf("%d kept %s", other, want),
		fmt.Sprintf("%d patched %s", other, want),
	} {
		if counts[in] < 20 {
			testenv.Lack(t, "%d samples of %q", counts[in], in)
		}
	}
	for in, n := range counts {
		if strings.HasPrefix(in, fmt.Sprintf("%d patched", patcher)) || strings.HasPrefix(in, fmt.Sprintf("%d [rewritten]", other)) {
			t.Errorf("%d samples of %q", n, in)
		}
	}
	notes := profile.Rewritten(p)
	if want := fmt.Sprintf("1 page of %s by process rewrite (%d)", file, patcher); len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
		t.Errorf("notes %q, want one that ends in %q", notes, want)
	}
}

// leaves counts samples by their process and their innermost frame: its function and the identity
// of its file, or the reason why it has none.
func leaves(p *pprof.Profile) map[string]int64 {
	counts := map[string]int64{}
	for _, s := range p.Sample {
		_, pid := profile.Process(s)
		l := s.Location[0]
		switch {
		case l.Mapping == nil || l.Mapping.BuildID == "" && l.Mapping.File == "":
		case l.Mapping.BuildID == "":
			counts[fmt.Sprintf("%d %s", pid, l.Mapping.File)] += s.Value[0]
		case len(l.Line) > 0:
			counts[fmt.Sprintf("%d %s %s", pid, l.Line[0].Function.Name, l.Mapping.BuildID)] += s.Value[0]
		}
	}
	return counts
}
