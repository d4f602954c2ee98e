package vmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// An outcome is how a test in the guest ended, and what it said.
type outcome struct{ action, output string }

// outcomes reads what a test binary wrote with -test.v=test2json.
func outcomes(t *testing.T, written []byte) map[string]outcome {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "go"), "tool", "test2json")
	cmd.Stdin = bytes.NewReader(written)
	events, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool test2json: %v", err)
	}
	found := map[string]outcome{}
	for d := json.NewDecoder(bytes.NewReader(events)); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			delete(found, "") // what is said of the package
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		o := found[e.Test]
		o.output += e.Output
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			o.action = e.Action
		}
		found[e.Test] = o
	}
}

// report makes every test of the guest a subtest of this one.
func (k kernel) report(t *testing.T, s suite, r Result) {
	t.Helper()
	tests := outcomes(t, r.Output)
	failed := false
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		o := tests[name]
		if o.action == "skip" && (o.wantsTool() || k.excuses(o)) {
			continue
		}
		ok := t.Run(s.pkg+"."+name, func(t *testing.T) {
			if o.action != "pass" {
				t.Errorf("%q on Linux %s:\n%s", o.action, k.series, o.output)
			}
		})
		failed = failed || !ok
	}
	for _, name := range s.must {
		if o := tests[name]; o.action != "pass" && o.action != "fail" && !k.excuses(o) {
			t.Errorf("%s.%s was not run: %q", s.pkg, name, o.output)
		}
	}
	if r.Status != 0 && !failed {
		t.Errorf("the tests of %s end with status %d:\n%s", s.pkg, r.Status, r.Output)
	}
	for name, content := range r.Files {
		golden(t, filepath.Join(root, filepath.FromSlash(s.pkg), name), string(content))
	}
}

// skipReason is what a test says that is skipped through testenv.
var skipReason = regexp.MustCompile(`NOT CHECKED: needs (.*)`)

// wantsTool reports whether a test was skipped for a program or a library that is not
// in the guest. Elsewhere it is run.
func (o outcome) wantsTool() bool {
	m := skipReason.FindStringSubmatch(o.output)
	return m != nil && (strings.HasSuffix(m[1], " in PATH") || strings.Contains(m[1], "shared libraries"))
}

// excuses reports whether a test was skipped for what the kernel is known to lack.
func (k kernel) excuses(o outcome) bool {
	return o.action == "skip" && k.lacks != "" && regexp.MustCompile(k.lacks).MatchString(o.output)
}
