package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/testenv"
)

// endedAtOnce ends a verb that says that it serves.
type endedAtOnce struct{ bytes.Buffer }

func (o *endedAtOnce) Write(b []byte) (int, error) {
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	return o.Buffer.Write(b)
}

// TestServeInAnotherUsersEnvironment is root with the home or the directories of another user, as
// with sudo -E: the server neither makes nor uses anything there.
func TestServeInAnotherUsersEnvironment(t *testing.T) {
	testenv.Root(t)
	const nobody = 65534
	own, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	theirs, cache := filepath.Join(own, "theirs"), filepath.Join(own, "cache")
	must(t, os.Mkdir(theirs, 0o755), os.Chown(theirs, nobody, nobody), os.Mkdir(cache, 0o700))
	// Where a store may be, that user put a link to a directory of root's.
	roots := filepath.Join(own, "roots")
	must(t, os.Mkdir(roots, 0o700), os.MkdirAll(filepath.Join(theirs, ".local/share"), 0o755), os.Symlink(roots, filepath.Join(theirs, ".local/share/hallmark")))
	for _, env := range []map[string]string{
		{"HOME": theirs, "XDG_DATA_HOME": "", "XDG_CACHE_HOME": cache},
		{"HOME": own, "XDG_DATA_HOME": filepath.Join(theirs, "data"), "XDG_CACHE_HOME": cache},
	} {
		for name, value := range env {
			t.Setenv(name, value)
		}
		var stdout endedAtOnce
		var stderr bytes.Buffer
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		if status := run(context.Background(), e, []string{"serve", "--listen", "127.0.0.1:0"}); status != 1 || !strings.Contains(stderr.String(), "another user can change it, or where its path leads: name a directory with --store") || stdout.Len() > 0 {
			t.Fatalf("%v: status %d, %s%s", env, status, &stdout, &stderr)
		}
	}
	for _, dir := range []string{roots, filepath.Join(theirs, ".local/share")} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) > 0 && dir == roots || len(entries) > 1 {
			t.Errorf("%s has %v", dir, entries)
		}
	}
	if _, err := os.Lstat(filepath.Join(theirs, "data")); err == nil {
		t.Error("a directory was made in the other user's")
	}
	// It changes no store of that user's, whose server could not read what it writes.
	for _, args := range [][]string{{"gc"}, {"pin", "1122"}, {"unpin", "1122"}} {
		var stdout, stderr bytes.Buffer
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		if status := run(context.Background(), e, append([]string{"serve", args[0], "--store", theirs}, args[1:]...)); status != 1 || !strings.Contains(stderr.String(), "it belongs to user 65534: run this as that user") {
			t.Errorf("%s: status %d, %s%s", args, status, &stdout, &stderr)
		}
	}
	// With a directory of its own it serves.
	t.Setenv("XDG_DATA_HOME", filepath.Join(own, "data"))
	if dir, err := dataDir(); err != nil || dir != filepath.Join(own, "data/hallmark/server") {
		t.Errorf("%s, %v", dir, err)
	}
}

// TestServeMissingScan serves though a directory of --scan is missing: a disk may be mounted later. A file is none.
func TestServeMissingScan(t *testing.T) {
	own := t.TempDir()
	file := filepath.Join(own, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for dir, want := range map[string]int{filepath.Join(own, "missing"): 0, file: 2} {
		var stdout endedAtOnce
		var stderr bytes.Buffer
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		args := []string{"serve", "--listen", "127.0.0.1:0", "--store", filepath.Join(own, "store"), "--cache", filepath.Join(own, "cache"), "--scan", dir}
		if status := run(context.Background(), e, args); status != want || want == 0 && stdout.Len() == 0 {
			t.Errorf("%s: status %d, %s%s", dir, status, &stdout, &stderr)
		}
	}
}

// TestTrustedProxies reads networks and addresses.
func TestTrustedProxies(t *testing.T) {
	o := &serveOptions{proxies: []string{"10.0.0.0/8", "::1"}}
	if got, err := o.trustedProxies(); err != nil || fmt.Sprint(got) != "[10.0.0.0/8 ::1/128]" {
		t.Errorf("%v, %v", got, err)
	}
	o.proxies = []string{"proxy.example"}
	if _, err := o.trustedProxies(); err == nil || !strings.Contains(err.Error(), "is no network") {
		t.Errorf("%v", err)
	}
}

func TestShownAddress(t *testing.T) {
	host, err := os.Hostname()
	must(t, err)
	got := &net.TCPAddr{IP: net.IPv6zero, Port: 8002}
	for asked, want := range map[string]string{":8002": host + ":8002", "0.0.0.0:0": host + ":8002", "[::]:0": host + ":8002", "localhost:0": "localhost:8002", "[::1]:0": "[::1]:8002"} {
		if shown := shownAddress(asked, got); shown != want {
			t.Errorf("%s: %s, want %s", asked, shown, want)
		}
	}
}

// TestShownUpstream wants the line that a server begins with to name the servers that it asks, and who said so.
func TestShownUpstream(t *testing.T) {
	t.Setenv("DEBUGINFOD_URLS", "https://user:secret@a.example/ http://b.example")
	for _, c := range []struct {
		opt  serveOptions
		want string
	}{
		{serveOptions{}, ", and what it lacks from https://a.example and http://b.example (DEBUGINFOD_URLS),"},
		{serveOptions{upstream: []string{"https://c.example"}}, ", and what it lacks from https://c.example (--upstream),"},
		{serveOptions{noUp: true}, ""},
	} {
		c.opt.cache = t.TempDir()
		client, err := c.opt.openUpstream()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.opt.shownUpstream(client); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
