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

// report makes every test of the guest a subtest of this one, and reports whether all is well.
func (k kernel) report(t *testing.T, s suite, r Result, m *Machine) (ok bool) {
	t.Helper()
	tests := outcomes(t, r.Output)
	repeated := k.repeat(t, s, m, tests)
	ok, failed := r.Ended, false
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		o := tests[name]
		if o.action == "skip" && (o.wantsTool() || k.excuses(o)) {
			continue
		}
		passed := t.Run(s.pkg+"."+name, func(t *testing.T) {
			if o.action != "pass" {
				t.Errorf("%q on Linux %s:\n%s", o.action, k.series, o.output)
			} else if text := repeated[name]; text != "" {
				t.Log(testenv.AloneMarker + text)
			}
		})
		failed = failed || !passed
	}
	for _, name := range s.must {
		if o := tests[name]; o.action != "pass" && o.action != "fail" && !k.excuses(o) {
			t.Errorf("%s.%s was not run: %q", s.pkg, name, o.output)
			ok = false
		}
	}
	if r.Status != 0 && !failed {
		t.Errorf("the tests of %s end with status %d:\n%s", s.pkg, r.Status, r.Output)
		failed = true
	}
	for name, content := range r.Files {
		ok = golden(t, filepath.Join(root, filepath.FromSlash(s.pkg), name), string(content)) && ok
	}
	return ok && !failed
}

// repeat runs the tests again, in a machine of their own, that declared a lack of samples or
// time, and puts how they end then in their place. It returns what those lacked that were
// repeated.
func (k kernel) repeat(t *testing.T, s suite, m *Machine, tests map[string]outcome) map[string]string {
	t.Helper()
	lacks := map[string]string{}
	var again []Job
	var names []string
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if text := tests[name].lack(); text != "" {
			lacks[name] = text
			names = append(names, name)
			again = append(again, s.job(testenv.RunPattern(name)))
		}
	}
	if len(again) == 0 {
		return nil
	}
	for i, r := range run(t, m, again) {
		o := outcomes(t, r.Output)[names[i]]
		if r.Status != 0 && o.action != "fail" { // one above it has failed, or the program
			o = outcome{"fail", string(r.Output)}
		}
		tests[names[i]] = o
	}
	return lacks
}

// lack returns what a test that was skipped says that it lacks, or "".
func (o outcome) lack() string {
	if _, text, found := strings.Cut(o.output, testenv.LackMarker); found && o.action == "skip" {
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
	return ""
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
