package cli

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
)

// hallmark runs a command line that must succeed, and returns its output.
func hallmark(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
	if status := run(context.Background(), e, args); status != 0 {
		t.Fatalf("hallmark %q: status %d\n%s", args, status, &stderr)
	}
	return stdout.String()
}

// TestConvertedProfileIsTheSame reads the profile as pprof shows it, before and
// after.
func TestConvertedProfileIsTheSame(t *testing.T) {
	for name, file := range map[string]string{
		"cpu":   proftest.Save(t, proftest.CPU(t)),
		"heap":  proftest.Save(t, proftest.Heap(t)),
		"mixed": proftest.Save(t, proftest.Mixed()),
	} {
		converted := filepath.Join(t.TempDir(), "converted.pb.gz")
		hallmark(t, "convert", "--no-symbols", "-o", converted, file)
		for _, form := range []string{"-raw", "-traces", "-top"} {
			if got, want := proftest.Pprof(t, form, converted), proftest.Pprof(t, form, file); got != want {
				t.Errorf("%s: pprof %s shows\n%s\nand before\n%s", name, form, got, want)
			}
		}
	}
}

// typeArgs are what Go's own profiles say of generic functions, and people are
// not shown: go.shape types in brackets.
var typeArgs = regexp.MustCompile(`\[go\.shape.*\]`)

// wrappers are the functions that the compiler makes around deferred calls, and
// what is inlined into them. Go's own profiles leave wrappers out and show what
// they call (runtime/traceback.go, elideWrapperCalling); they are code with an
// address of its own, and are named here.
var wrappers = regexp.MustCompile(`(?m)(?: \(inline\))?\n.*\.deferwrap\d+$`)

// TestConvertedProfileHasItsSymbolsBack takes the symbols out of a profile that
// Go's runtime made of this test. What is converted from it must have the same
// functions, with the same figures, and the same stacks.
func TestConvertedProfileHasItsSymbolsBack(t *testing.T) {
	p := proftest.CPU(t)
	original := proftest.Save(t, p)
	proftest.Strip(p)
	converted := filepath.Join(t.TempDir(), "converted.pb.gz")
	hallmark(t, "convert", "-o", converted, proftest.Save(t, p))
	got := wrappers.ReplaceAllString(proftest.Pprof(t, "-traces", converted), "")
	want := typeArgs.ReplaceAllString(proftest.Pprof(t, "-traces", original), "[...]")
	if got != want {
		t.Errorf("stacks are\n%s\nand were\n%s", got, want)
	}
	top := proftest.Top(t, converted, "cpu", "ns")
	for name, want := range proftest.Top(t, original, "cpu", "ns") {
		if !strings.Contains(name, "[go.shape") && top[name] != want {
			t.Errorf("%s: %+v, and before %+v", name, top[name], want)
		}
	}
}
