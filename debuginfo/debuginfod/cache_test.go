package debuginfod

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestClean wants what nobody read for a week gone, when a day has passed since
// it was looked at, and nothing else.
func TestClean(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		control time.Duration // age of the control file
		age     time.Duration // of a file in the cache
		gone    bool
	}{
		"old file, old look":   {25 * time.Hour, 8 * 24 * time.Hour, true},
		"old file, recent one": {23 * time.Hour, 8 * 24 * time.Hour, false},
		"young file":           {25 * time.Hour, 6 * 24 * time.Hour, false},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "abcdef", "debuginfo")
		stranger := filepath.Join(dir, "my notes", "debuginfo")
		for path, age := range map[string]time.Duration{file: tt.age, stranger: tt.age, filepath.Join(dir, cleanSeconds): tt.control} {
			write(t, path, "86400\n")
			if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		(&Client{Dir: dir}).clean()
		if _, err := os.Stat(file); os.IsNotExist(err) != tt.gone {
			t.Errorf("%s: %v, want it gone: %t", name, err, tt.gone)
		}
		if _, err := os.Stat(filepath.Dir(file)); os.IsNotExist(err) != tt.gone {
			t.Errorf("%s: its directory: %v", name, err)
		}
		if _, err := os.Stat(stranger); err != nil {
			t.Errorf("%s: what is not ours: %v", name, err)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMissIsForgottenSooner reads the control file that says so.
func TestMissIsForgottenSooner(t *testing.T) {
	id, _ := example(t)
	c, requests := serve(t, http.NotFound)
	write(t, filepath.Join(c.Dir, missSeconds), "0\n")
	for range 3 {
		_, _ = c.Fetch(t.Context(), id, DebugInfo)
	}
	if requests.Load() != 3 {
		t.Errorf("%d requests", requests.Load())
	}
}
