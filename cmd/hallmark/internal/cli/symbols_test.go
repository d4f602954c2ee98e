package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
)

// runReport runs hallmark report with the URLs of debuginfod servers, away from what the
// user of this machine has in caches.
func runReport(t *testing.T, urls string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("DEBUGINFOD_CACHE_PATH", filepath.Join(home, "debuginfod"))
	t.Setenv("DEBUGINFOD_URLS", urls)
	var out, errs strings.Builder
	e := &verb.Env{Stdout: &out, Stderr: &errs, Stdin: strings.NewReader("")}
	status = run(context.Background(), e, append([]string{"report"}, args...))
	return status, out.String(), errs.String()
}

// TestDeadDebuginfodServer reports a profile of several files: a server that is not there
// is reported once, and nothing else is different.
func TestDeadDebuginfodServer(t *testing.T) {
	mixed := proftest.Save(t, proftest.Mixed())
	status, want, stderr := runReport(t, "", mixed)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	status, got, stderr := runReport(t, "http://127.0.0.1:1", mixed)
	if status != 0 || strings.Count(stderr, "http://127.0.0.1:1: ") != 1 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d: %s", status, stderr)
	}
	if !strings.Contains(got, "a debuginfod server failed") || strings.Split(got, "Coverage")[0] != strings.Split(want, "Coverage")[0] {
		t.Errorf("the report is\n%s\nand was\n%s", got, want)
	}
	want = strings.ReplaceAll(want, "set DEBUGINFOD_URLS (Debian: https://debuginfod.debian.net), or ", "") // it is set
	status, got, stderr = runReport(t, "http://127.0.0.1:1", "--no-debuginfod", mixed)
	if status != 0 || stderr != "" || got != want {
		t.Errorf("with --no-debuginfod: status %d, %s%s", status, stderr, got)
	}
}

// TestDebuginfodServerIsAsked has a server that has nothing.
func TestDebuginfodServerIsAsked(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.NotFound(w, r)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	mixed := proftest.Save(t, proftest.Mixed())
	status, _, stderr := runReport(t, server.URL, "--verbose", mixed)
	if status != 0 || requests.Load() == 0 {
		t.Errorf("status %d, %d requests: %s", status, requests.Load(), stderr)
	}
	for _, id := range []string{proftest.LibID, proftest.KernelID} {
		if !strings.Contains(stderr, "hallmark: "+id+": debuginfod: "+server.URL+"/buildid/"+id+"/debuginfo: not there\n") {
			t.Errorf("--verbose tells nothing of %s:\n%s", id, stderr)
		}
	}
}

// TestInterruptedWhileAskingServers presses Ctrl-C, once, while a server is silent.
func TestInterruptedWhileAskingServers(t *testing.T) {
	var press sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		press.Do(func() { pressCtrlC(t) })
		<-r.Context().Done()
	}))
	defer server.Close()
	status, stdout, stderr := runReport(t, server.URL, proftest.Save(t, proftest.Mixed()))
	if status != 1 || stdout != "" || stderr != "hallmark: "+symbolsource.ErrAsking.Error()+"\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

func TestSymbolOptionsAreChecked(t *testing.T) {
	mixed := proftest.Save(t, proftest.Mixed())
	if status, _, stderr := runReport(t, "", "--debug-path", "/nonexistent", mixed); status != 1 || stderr != "hallmark: --debug-path: open /nonexistent: no such file or directory\n" {
		t.Errorf("status %d: %s", status, stderr)
	}
	t.Setenv("DEBUGINFOD_TIMEOUT", "soon")
	if status, _, stderr := runReport(t, "http://127.0.0.1:1", mixed); status != 1 || !strings.Contains(stderr, "DEBUGINFOD_TIMEOUT") {
		t.Errorf("status %d: %s", status, stderr)
	}
}
