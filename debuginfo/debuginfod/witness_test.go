package debuginfod

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// TestBesideElfutils asks elfutils' server, and shares the cache with its client:
// what one fetched, or was told that it is not there, the other one finds.
func TestBesideElfutils(t *testing.T) {
	client := testenv.Tool(t, "debuginfod-find")
	id, content := example(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "true"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	url := testenv.Debuginfod(t, dir, "/buildid/"+id.String()+"/executable")
	missing, err := buildid.Parse("00112233445566778899aabbccddeeff00112233")
	if err != nil {
		t.Fatal(err)
	}
	find := func(cache, urls string, id buildid.ID) (string, error) {
		cmd := exec.Command(client, "executable", id.String())
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+urls, "DEBUGINFOD_CACHE_PATH="+cache)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	const nobody = "http://127.0.0.1:1"

	ours := &Client{URLs: []string{url}, Dir: filepath.Join(t.TempDir(), "cache")}
	path, err := ours.Fetch(t.Context(), id, Executable)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(content) {
		t.Errorf("fetched %d bytes, %v", len(got), err)
	}
	if got, err := find(ours.Dir, nobody, id); err != nil || got != path {
		t.Errorf("debuginfod-find says %q, %v; want %s", got, err, path)
	}
	if _, err := ours.Fetch(t.Context(), missing, Executable); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that nobody has: %v", err)
	}

	theirs := filepath.Join(t.TempDir(), "cache")
	if _, err := find(theirs, url, id); err != nil {
		t.Fatal(err)
	}
	if _, err := find(theirs, url, missing); err == nil {
		t.Fatal("debuginfod-find found a file that nobody has")
	}
	sharing := &Client{URLs: []string{nobody}, Dir: theirs}
	if _, err := sharing.Fetch(t.Context(), id, Executable); err != nil {
		t.Errorf("what debuginfod-find fetched: %v", err)
	}
	if _, err := sharing.Fetch(t.Context(), missing, Executable); !errors.Is(err, ErrNotFound) {
		t.Errorf("what debuginfod-find did not find: %v", err)
	}
}
