package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quoted are the words between backticks.
var quoted = regexp.MustCompile("`([^` ]+)`")

// TestArchitectureNamesWhatIsThere wants each file, directory and identifier to be there that
// ARCHITECTURE.md names for a change, so that a newcomer is led to no room that has moved.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Where to change what")
	if !ok {
		t.Fatal("there is no section on where to change what")
	}
	names, source := sourceText(t)
	checked := 0
	for _, row := range strings.Split(table, "\n") {
		for _, m := range quoted.FindAllStringSubmatch(row, -1) {
			checked++
			if word := m[1]; !isThere(word, names, source) {
				t.Errorf("%q names %s, which is not there", strings.Split(row, "|")[min(1, strings.Count(row, "|"))], word)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names were checked", checked)
	}
}

// isThere reports whether a path, the name of a file or an identifier is there.
func isThere(word string, names map[string]bool, source string) bool {
	if matches, err := filepath.Glob(filepath.Join("../..", word)); err == nil && len(matches) > 0 {
		return true
	}
	if strings.Contains(word, "*") {
		for name := range names {
			if ok, _ := filepath.Match(word, name); ok {
				return true
			}
		}
		return false
	}
	if ext := filepath.Ext(word); names[word] || ext == ".go" || ext == ".c" || ext == ".h" || strings.Contains(word, "/") {
		return names[word]
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(word[strings.LastIndexByte(word, '.')+1:]) + `\b`).MatchString(source)
}

// sourceText returns the names of all files, and the text of those in Go and C.
func sourceText(t *testing.T) (names map[string]bool, text string) {
	t.Helper()
	names = map[string]bool{}
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		names[d.Name()] = true
		if ext := filepath.Ext(path); d.Type().IsRegular() && (ext == ".go" || ext == ".c" || ext == ".h") && d.Name() != "architecture_test.go" {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, all.String()
}

// mostFiles is how many files besides tests a package may have without a reason.
const mostFiles = 25

// TestLargePackagesHaveReasons wants ARCHITECTURE.md to say of each package with more files why it
// is one thing, and of no other.
func TestLargePackagesHaveReasons(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Large packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	files := map[string]int{}
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			rel, _ := filepath.Rel("../..", filepath.Dir(path))
			files[filepath.ToSlash(rel)]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, n := range files {
		hasReason := strings.Contains(section, "\n- `"+pkg+"` has ")
		if large := n > mostFiles; large != hasReason {
			t.Errorf("%s has %d files; ARCHITECTURE.md has a reason: %v", pkg, n, hasReason)
		}
	}
}
