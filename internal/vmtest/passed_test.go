package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestInputsAreWhole wants every package of this module that the tests of a suite are built
// with to be an input of the suite, or to be known to have nothing to do with kernels.
func TestInputsAreWhole(t *testing.T) {
	for _, s := range slices.Concat(suites, armSuites) {
		cmd := exec.Command(testenv.Tool(t, "go"), "list", "-deps", "-test", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./"+s.pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		for line := range strings.Lines(string(out)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			_, name, _ = strings.Cut(name, "/")
			name = strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
			if name != "" && name != s.pkg && !slices.Contains(s.inputs, name) && notOfKernels[name] == "" {
				t.Errorf("the tests of %s are built with %s, which is neither an input of the suite %s nor among notOfKernels", s.pkg, name, s.name)
			}
		}
	}
	for _, name := range slices.Concat(machineFiles, recordInputs, doctor.inputs) {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestStale changes one file after the other of a copy, and wants what depends on it, and
// nothing else, to be run again.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	for _, name := range slices.Concat(machineFiles, recordInputs, doctor.inputs, []string{"capture", "internal/regular", "internal/vmtest/testdata"}) {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		if err := copyTo(to, from); err != nil {
			t.Fatal(err)
		}
	}
	list, err := readPassed(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, passedFile)); err != nil {
		t.Fatal(err)
	}
	for _, k := range kernels {
		for _, s := range append(slices.Clone(k.suites), doctor) {
			if err := list.add(k, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := Stale(dir, true)
	if err != nil || len(all) != 44 {
		t.Fatalf("%d suites: %v", len(all), err)
	}
	if again, err := readPassed(dir); err != nil || len(again.lines) != len(all) {
		t.Fatalf("%d lines for %d suites: %v", len(again.lines), len(all), err)
	}
	for _, test := range []struct {
		file, old, new string
		stale          func(string) bool // which suites are
	}{
		{"procmap/doc.go", "// Package procmap", "// A comment. Package procmap", func(string) bool { return false }},
		{"internal/bpf/c/vma.h", "", "/* C is not built here. */", func(string) bool { return false }},
		{"capture/new_test.go", "", "package capture\n", func(s string) bool { return s == "record" }},
		{"execwatch/new_test.go", "", "package execwatch\n", func(s string) bool { return s == "watch" }},
		{"buildid/new_test.go", "", "package buildid\n", func(s string) bool { return s == "buildid" }},
		{"internal/regular/new_test.go", "", "package regular\n", func(s string) bool { return s == "regular" }},
		{"go.mod", "", "// new", func(string) bool { return true }},
		{"internal/bpf/sampler_bpfel.o", "", "x", func(s string) bool {
			return strings.HasPrefix(s, "bpf") || s == "record" || s == "watch" || s == "doctor"
		}},
		{"internal/vmtest/testdata/doctor-6.1.txt", "", "x", func(s string) bool { return s == "doctor" }},
		{"internal/vmtest/arch.go", "1536M", "2048M", func(string) bool { return true }},
	} {
		t.Run(test.file, func(t *testing.T) {
			name := filepath.Join(dir, test.file)
			was, err := os.ReadFile(name)
			isNew := os.IsNotExist(err)
			text := string(was) + test.new
			if test.old != "" {
				if text = strings.Replace(string(was), test.old, test.new, 1); text == string(was) {
					t.Fatalf("%s has no %q", test.file, test.old)
				}
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if os.Remove(name); !isNew {
					os.WriteFile(name, was, 0o644)
				}
			}()
			stale, err := Stale(dir, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				series, suite, _ := strings.Cut(s, " ")
				want := test.stale(suite) && (!strings.HasSuffix(test.file, "doctor-6.1.txt") || series == "6.1")
				if got := slices.Contains(stale, s); got != want {
					t.Errorf("%s: stale %v, want %v", s, got, want)
				}
			}
		})
	}
	if stale, err := Stale(dir, false); err != nil || len(stale) > 0 {
		t.Errorf("%q is stale: %v", stale, err)
	}
}

func copyTo(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
