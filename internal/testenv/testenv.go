// Package testenv knows what the machine has, and makes skips accountable:
// what is missing skips a test at home, loudly, and fails it in CI.
package testenv

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// CI reports whether the tests run where nothing may be missing.
func CI() bool { return os.Getenv("CI") != "" }

// Emulated reports whether the tests run on an emulated processor, as internal/vmtest
// does it: there a test may want the same answers, but not as many in a second.
func Emulated() bool { return os.Getenv("HALLMARK_EMULATED") != "" }

// Need ends the test unless ok: it fails in CI and is skipped elsewhere. what
// names the missing thing and how to get it.
func Need(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case CI():
		t.Fatalf("NOT CHECKED: needs %s", what)
	default:
		t.Skipf("NOT CHECKED: needs %s", what)
	}
}

// Tool returns the path of a program that the test runs as an independent witness.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if name == "perf" && testing.Short() {
		t.Skip("left out by --quick: needs perf")
	}
	path, err := exec.LookPath(name)
	Need(t, err == nil, name+" in PATH")
	return path
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root")
}

// ELFTrees are the directories whose ELF files nobody prepared for a test.
var ELFTrees = []string{"/usr", "/usr/local/go"}

// ELFFiles returns every regular file that starts with the ELF magic in the
// directories, once each, in the order of the directories and then by path.
func ELFFiles(t testing.TB, dirs ...string) []string {
	t.Helper()
	var files []string
	seen := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !seen[path] && isELF(path) {
				seen[path] = true
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = f.ReadAt(magic[:], 0)
	return err == nil && string(magic[:]) == "\x7fELF"
}
