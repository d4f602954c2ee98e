package addr2line

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/debuginfo"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/testenv"
)

// TestDebuginfodOptions has both ask a server for debug information, and not.
func TestDebuginfodOptions(t *testing.T) {
	testenv.Tool(t, "debuginfod")
	program := build(t, "inlines.c", "gcc", "-g", "-O2", "-Wl,--build-id")
	stripped := filepath.Join(t.TempDir(), "stripped")
	toolOutput(t, "objcopy", "-g", program, stripped)
	work := symbolAddress(t, program, "work")
	url := testenv.Debuginfod(t, filepath.Dir(program), "/buildid/"+identityOf(t, program)+"/debuginfo")
	for _, c := range []struct {
		args  string
		finds bool
	}{{"", true}, {"--debuginfod", true}, {"--no-debuginfod", false}, {"--no-debuginfod --debuginfod", true}, {"--debuginfod --no-debuginfod", false}} {
		args := append(strings.Fields(c.args), "-e", stripped, work)
		original := exec.Command(testenv.Tool(t, witnesses[LLVMSymbolizer]), args...)
		original.Env = append(os.Environ(), "DEBUGINFOD_URLS="+url, "DEBUGINFOD_CACHE_PATH="+t.TempDir())
		want, err := original.Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		var got bytes.Buffer
		library := &debuginfo.Library{Finder: debuginfo.Finder{Servers: &debuginfod.Client{URLs: []string{url}, Dir: t.TempDir()}}}
		Run(context.Background(), LLVMSymbolizer, "x", args, World{
			Stdin: strings.NewReader(""), Stdout: &got, Stderr: os.Stderr, Getenv: func(string) string { return "" }, Library: library,
		})
		if got.String() != string(want) || strings.Contains(got.String(), "inlines.c") != c.finds {
			t.Errorf("%q prints\n%s\nwant\n%s", c.args, got.String(), want)
		}
	}
}
