package debuginfod

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plainEnvironment has none of the variables set.
func plainEnvironment(t *testing.T) {
	for _, name := range []string{"URLS", "CACHE_PATH", "TIMEOUT", "MAXTIME", "MAXSIZE", "RETRY_LIMIT", "HEADERS_FILE"} {
		t.Setenv("DEBUGINFOD_"+name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
}

func TestFromEnvironment(t *testing.T) {
	plainEnvironment(t)
	header := filepath.Join(t.TempDir(), "header")
	write(t, header, "X-Key: secret: one\n\nAccept-Language:de\n")
	t.Setenv("DEBUGINFOD_URLS", " https://one.example/  ima:enforcing http://two.example/path/ ima:ignore https://three.example")
	t.Setenv("DEBUGINFOD_CACHE_PATH", "/somewhere")
	t.Setenv("DEBUGINFOD_TIMEOUT", "7")
	t.Setenv("DEBUGINFOD_MAXTIME", "60")
	t.Setenv("DEBUGINFOD_MAXSIZE", "6000000000")
	t.Setenv("DEBUGINFOD_RETRY_LIMIT", "4")
	t.Setenv("DEBUGINFOD_HEADERS_FILE", header)
	c, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"https://one.example", "https://three.example"}; !slices.Equal(c.URLs, want) {
		t.Errorf("URLs %q, want %q", c.URLs, want)
	}
	if want := []string{"http://two.example/path"}; !slices.Equal(c.Unsigned, want) {
		t.Errorf("without signatures %q, want %q", c.Unsigned, want)
	}
	if c.Dir != "/somewhere" || c.Timeout != 7*time.Second || c.MaxTime != time.Minute || c.MaxSize != 6e9 || c.Retries != 4 {
		t.Errorf("%+v", c)
	}
	if c.Header.Get("X-Key") != "secret: one" || c.Header.Get("Accept-Language") != "de" {
		t.Errorf("header %v", c.Header)
	}
}

func TestCacheDir(t *testing.T) {
	plainEnvironment(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	if got, want := CacheDir(), filepath.Join(home, ".cache/debuginfod_client"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	old := filepath.Join(home, ".debuginfod_client_cache")
	write(t, filepath.Join(old, "file"), "")
	if got := CacheDir(); got != old {
		t.Errorf("%s, want %s", got, old)
	}
}

func TestBadEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"DEBUGINFOD_TIMEOUT": "soon", "DEBUGINFOD_MAXSIZE": "-1", "DEBUGINFOD_RETRY_LIMIT": "99999999999", "DEBUGINFOD_HEADERS_FILE": "/nonexistent",
	} {
		plainEnvironment(t)
		t.Setenv(name, value)
		if _, err := FromEnvironment(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
