package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

const published = "example.org/you/hallmark"

// copied returns a copy of this module, with the other path.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	err = walk(root, func(name string, _ fs.DirEntry) error {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := rename(dir, published)
	if err != nil || changed < 100 {
		t.Fatalf("%d files changed, %v", changed, err)
	}
	return dir
}

type listed struct {
	ImportPath, Name string
	Error            *struct{ Err string }
}

// list returns the packages of a module, of which each import must be there.
func list(t *testing.T, dir string) (all []listed) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "go"), "list", "-e", "-test", "-json=ImportPath,Name,Error,DepsErrors", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			listed
			DepsErrors []struct{ Err string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil || len(p.DepsErrors) > 0 {
			t.Errorf("%s: %v %v", p.ImportPath, p.Error, p.DepsErrors)
		}
		all = append(all, p.listed)
	}
}

// TestRename gives a copy of this module another path: each import leads to a package, and nothing
// else of it has the path from before.
func TestRename(t *testing.T) {
	dir := copied(t)
	all := list(t, dir)
	if len(all) < 50 {
		t.Errorf("%d packages", len(all))
	}
	for _, nested := range []string{"bench", "tools"} {
		mod, err := os.ReadFile(filepath.Join(dir, nested, "go.mod"))
		if err != nil || !bytes.HasPrefix(mod, []byte("module "+published+"/"+nested+"\n")) {
			t.Errorf("%s: %.60q, %v", nested, mod, err)
		}
	}
	again, err := rename(dir, "example.net/h/v2")
	if err != nil || again < 100 {
		t.Errorf("once more: %d files changed, %v", again, err)
	}
	if mod, _ := os.ReadFile(filepath.Join(dir, "go.mod")); !bytes.HasPrefix(mod, []byte("module example.net/h/v2\n")) {
		t.Errorf("once more: %.60q", mod)
	}
}

func TestRenameRefuses(t *testing.T) {
	for _, path := range []string{"", "hallmark", "example.org/", "Example.org/x", "example.org/x y", "../x", "example.org//x", "example.org/.x"} {
		if n, err := rename(t.TempDir(), path); err == nil || n != 0 || !strings.Contains(err.Error(), "no path of a module") {
			t.Errorf("%q: %d files, %v", path, n, err)
		}
	}
	if _, err := rename(t.TempDir(), published); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory without a module: %v", err)
	}
}

func TestSource(t *testing.T) {
	r := &renaming{from: "hallmark", to: published, packages: map[string]bool{"addr": true, "internal/x": true}}
	if err := r.compile(); err != nil {
		t.Fatal(err)
	}
	got, err := r.source("a.go", []byte(`// Package a is hallmark/addr, tested by hallmark/addr_test.Name, kept in ~/.cache/hallmark/addr.
package a

import (
	"fmt"

	"hallmark/internal/x"
	"other.org/y"
)

var names = []string{"hallmark", "hallmark/addr", "hallmark/none", "hallmark/...", "hallmark-test", x.Name, y.Name, fmt.Sprint()}
`))
	want := `// Package a is example.org/you/hallmark/addr, tested by example.org/you/hallmark/addr_test.Name, kept in ~/.cache/hallmark/addr.
package a

import (
	"fmt"

	"example.org/you/hallmark/internal/x"
	"other.org/y"
)

var names = []string{"hallmark", "example.org/you/hallmark/addr", "hallmark/none", "example.org/you/hallmark/...", "hallmark-test", x.Name, y.Name, fmt.Sprint()}
`
	if err != nil || string(got) != want {
		t.Errorf("%s\n%v", got, err)
	}
}

// TestImported publishes a copy of this module, with another path, in a module proxy of the file
// system, and builds a program that fetches it from there and imports each public package.
func TestImported(t *testing.T) {
	if !testenv.Thorough() {
		t.Skip("left to HALLMARK_THOROUGH=1: all packages are built anew")
	}
	dir, proxy := copied(t), t.TempDir()
	const version = "v0.1.0"
	at := filepath.Join(proxy, published, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".mod": mod, version + ".info": fmt.Appendf(nil, `{"Version":%q}`, version), version + ".zip": zipped(t, dir, version),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var program strings.Builder
	program.WriteString("package main\n\nimport (\n")
	for _, p := range list(t, dir) {
		isTest := strings.HasSuffix(p.ImportPath, ".test") || strings.HasSuffix(p.Name, "_test") || strings.Contains(p.ImportPath, " ")
		if p.Name != "main" && !isTest && !strings.Contains(p.ImportPath, "/internal/") {
			fmt.Fprintf(&program, "\t_ %q\n", p.ImportPath)
		}
	}
	program.WriteString(")\n\nfunc main() {}\n")
	client := t.TempDir()
	if err := os.WriteFile(filepath.Join(client, "main.go"), []byte(program.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command(testenv.Tool(t, "go"), "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(cache))
	for _, args := range [][]string{
		{"mod", "init", "example.com/client"},
		{"get", published + "@" + version},
		{"build", "-o", "client", "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = client
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off", "GOMODCACHE="+filepath.Join(client, "mod"),
			"GOPROXY=file://"+proxy+",file://"+filepath.Join(known[0], "cache", "download")+","+known[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s\n%s", strings.Join(args, " "), err, out, &program)
		}
	}
	if strings.Count(program.String(), "\t_ ") < 15 {
		t.Errorf("few packages are public:\n%s", &program)
	}
}

// zipped returns the archive of a module: https://go.dev/ref/mod#zip-files. Nested modules are not in it.
func zipped(t *testing.T, dir, version string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	err := walk(dir, func(name string, _ fs.DirEntry) error {
		if first, _, _ := strings.Cut(name, string(filepath.Separator)); first == "bench" || first == "tools" {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		w, err := z.Create(published + "@" + version + "/" + filepath.ToSlash(name))
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
