package debuginfod

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hallmark/internal/cachedir"
	"hallmark/internal/testenv"
)

// TestCacheOfAnotherUser is root with the cache of a user who made links in it: nothing is
// fetched, and what the links lead to stays as it is.
func TestCacheOfAnotherUser(t *testing.T) {
	testenv.Root(t)
	id, _ := example(t)
	c, requests := serve(t, http.NotFound)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "of root alone")
	old := time.Now().Add(-8 * 24 * time.Hour)
	links := []string{filepath.Join(c.Dir, cleanSeconds), c.path(key{id: id, file: DebugInfo})}
	for _, name := range links {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(secret, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(c.Dir, 65534, 65534), os.Chtimes(secret, old, old)); err != nil {
		t.Fatal(err)
	}
	if path, err := c.Fetch(t.Context(), id, DebugInfo); !errors.Is(err, cachedir.ErrShared) {
		t.Errorf("%q, %v", path, err)
	}
	if err := c.Check(); !errors.Is(err, cachedir.ErrShared) {
		t.Errorf("the cache is used: %v", err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "of root alone" || requests.Load() > 0 {
		t.Errorf("root's file has %q, %v; %d requests", b, err, requests.Load())
	}
	if info, err := os.Stat(secret); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("root's file has another time: %v, %v", info.ModTime(), err)
	}
	for _, name := range links {
		if info, err := os.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	// A directory of one build ID, which was made by somebody else.
	if err := errors.Join(os.Chown(c.Dir, 0, 0), os.Chown(filepath.Dir(links[1]), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if path, err := c.Fetch(t.Context(), id, DebugInfo); !errors.Is(err, cachedir.ErrShared) {
		t.Errorf("in a directory of another user: %q, %v", path, err)
	}
}

// TestControlFilesAreBounded has control files that no client wrote.
func TestControlFilesAreBounded(t *testing.T) {
	c := &Client{Dir: t.TempDir()}
	name := filepath.Join(c.Dir, missSeconds)
	const unset = 600 * time.Second
	for text, want := range map[string]time.Duration{
		"5":                        5 * time.Second,
		" 7\n":                     7 * time.Second,
		"-1":                       0,
		"9223372036854775807":      mostSeconds * time.Second,
		"92233720368547758070":     unset,
		"":                         unset,
		strings.Repeat(" ", 1<<20): unset,
	} {
		write(t, name, text)
		if got := c.seconds(missSeconds); got != want {
			t.Errorf("%.30q: %v, want %v", text, got, want)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	testenv.Trap(t, name)
	if got := c.seconds(missSeconds); got != unset {
		t.Errorf("a pipe: %v", got)
	}
}
