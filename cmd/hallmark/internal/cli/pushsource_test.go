package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/testenv"
	"hallmark/server/api"
)

// received is a symbol server that wants all files and remembers the sources that it gets.
type received struct {
	mu      sync.Mutex
	files   int
	sources map[string]string
}

func receiver(t *testing.T) (r *received, url string) {
	t.Helper()
	r = &received{sources: map[string]string{}}
	answer := func(w http.ResponseWriter, v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, q *http.Request) {
		var plan api.Plan
		if err := json.NewDecoder(q.Body).Decode(&plan); err != nil {
			t.Error(err)
		}
		var out api.Planned
		for range plan.Files {
			out.Files = append(out.Files, api.PlannedFile{Action: api.Upload})
		}
		answer(w, out)
	})
	mux.HandleFunc("PUT /v1/files/{sum}", func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.files++
		r.mu.Unlock()
		answer(w, api.Stored{})
	})
	mux.HandleFunc("PUT /v1/sources/{id}", func(_ http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sources[q.URL.Query().Get("path")] = string(b)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return r, s.URL
}

// pushed runs push and returns the sources that the server got.
func pushed(t *testing.T, args ...string) map[string]string {
	t.Helper()
	r, url := receiver(t)
	var stdout, stderr bytes.Buffer
	e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
	if status := run(context.Background(), e, append([]string{"push", "--server", url}, args...)); status != 0 {
		t.Fatalf("status %d: %s%s", status, &stdout, &stderr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files == 0 {
		t.Fatalf("no file was sent: %s%s", &stdout, &stderr)
	}
	return r.sources
}

// compiledFrom returns a program whose debug information names these source files.
func compiledFrom(t *testing.T, paths ...string) string {
	t.Helper()
	testenv.Tool(t, "gcc")
	prog := filepath.Join(t.TempDir(), "prog")
	var text strings.Builder
	for i, path := range paths {
		fmt.Fprintf(&text, "#line 1 %q\n__attribute__((noinline)) int f%d(int x) { return x * %d + 1; }\n", path, i, i+3)
	}
	text.WriteString("#line 1 \"/nowhere/main.c\"\nint main(int c, char **v) { return 0")
	for i := range paths {
		fmt.Fprintf(&text, " + f%d(c)", i)
	}
	text.WriteString("; }\n")
	cmd := exec.Command("gcc", "-g", "-O1", "-Wl,--build-id", "-o", prog, "-x", "c", "-")
	cmd.Stdin, cmd.Dir = strings.NewReader(text.String()), "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return prog
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPushSendsNoStrangersSources pushes a program whose debug information names files outside of
// the directory of --source, links out of it, pipes, and files of the kernel.
func TestPushSendsNoStrangersSources(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	dir := filepath.Join(t.TempDir(), "src")
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(secret, []byte("root:x\n"), 0o600), os.MkdirAll(at("sub"), 0o755),
		os.WriteFile(at("own.c"), []byte("own"), 0o644), os.WriteFile(at("sub/own.h"), []byte("header"), 0o644),
		os.WriteFile(dir+"-neighbour.c", []byte("beside"), 0o644), os.WriteFile(at("-neighbour.c"), []byte("another"), 0o644))
	relative, err := filepath.Rel(dir, outside)
	must(t, err)
	must(t, os.Symlink(secret, at("absolute.c")), os.Symlink(filepath.Join(relative, "secret"), at("relative.c")),
		os.Symlink(outside, at("absolute")), os.Symlink(relative, at("relative")), os.Symlink("own.c", at("inside.c")),
		os.Symlink("/proc/self/root", at("root")), os.Symlink("/proc/self/status", at("status.c")))
	testenv.Trap(t, at("pipe.c"))
	testenv.Trap(t, filepath.Join(outside, "pipe.c"))

	prog := compiledFrom(t, secret, at("own.c"), at("sub/own.h"), at("sub/../../src/sub/../inside.c"), dir+"-neighbour.c", dir, dir+"/",
		at("absolute.c"), at("relative.c"), at("absolute/secret"), at("relative/secret"), at("pipe.c"), at("status.c"), at("sub"),
		at("root/"+secret), dir+"/../"+filepath.Base(dir)+"-neighbour.c", dir+"/"+relative+"/secret", filepath.Join(outside, "pipe.c"),
		"/proc/self/status", "own.c", "../../src/own.c")

	if got := pushed(t, prog); len(got) > 0 {
		t.Errorf("without --source: %q", got)
	}
	want := map[string]string{at("own.c"): "own", at("sub/own.h"): "header", at("inside.c"): "own"}
	got := map[string]string{}
	for path, text := range pushed(t, "--source", dir, prog) {
		got[filepath.Clean(path)] = text
	}
	if !maps.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
	// A link to the directory allows the same files, whichever name the compiler saw.
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	got = pushed(t, "--source", filepath.Join(dir, "sub"), "--source", link, compiledFrom(t, at("own.c"), filepath.Join(link, "sub/own.h"), at("absolute.c")))
	if want := map[string]string{at("own.c"): "own", filepath.Join(link, "sub/own.h"): "header"}; !maps.Equal(got, want) {
		t.Errorf("by a link to the directory the server got %q, want %q", got, want)
	}
	if got := pushed(t, "--source", "/", compiledFrom(t, at("own.c"), "/proc/self/status", "/sys/kernel/notes", at("status.c"), at("pipe.c"))); !maps.Equal(got, map[string]string{at("own.c"): "own"}) {
		t.Errorf("below / the server got %q", got)
	}
}
