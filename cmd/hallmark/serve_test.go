package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/testenv"
)

// startServe starts 'hallmark serve' over a directory and returns its URL and what ends it.
func startServe(t *testing.T, store string, args ...string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command("hallmark", append([]string{"serve", "--listen", "127.0.0.1:0", "--store", store, "--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(store, "..", "cache"), "DEBUGINFOD_URLS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 || words[0] != "Serving" {
		t.Fatalf("%q, %v: %s", line, err, &stderr)
	}
	return words[1], func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			t.Errorf("after SIGTERM: %v\n%s", err, &stderr)
		}
	}
}

// runStatus runs a command and returns its output. It wants the exit status.
func runStatus(t *testing.T, status int, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Errorf("%s %v: %v, want status %d: %s", name, args, err, status, out)
	}
	return string(out)
}

// TestServe is the first day of a user: start the server, push a program, ask for it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	prog := buildCounted(t, dir)
	store := filepath.Join(dir, "store")
	url, stop := startServe(t, store)
	out := runStatus(t, 0, "hallmark", "push", "--server", url, prog)
	if !strings.HasPrefix(out, "sent ") || !strings.Contains(out, "1 files sent") {
		t.Errorf("push: %s", out)
	}
	id := strings.Fields(out)[1]
	if out := runStatus(t, 0, "hallmark", "push", "--server", url, prog); !strings.Contains(out, "0 files sent") || !strings.Contains(out, "1 already there") {
		t.Errorf("push again: %s", out)
	}
	if out := runStatus(t, 1, "hallmark", "push", "--server", url, "--json", "/etc/hostname", filepath.Join(dir, "none"), dir); strings.Count(out, `"error"`) != 2 {
		t.Errorf("push of what is none: %s", out)
	}
	stop()
	url, stop = startServe(t, store, "--read-only") // another server has it, too
	defer stop()
	resp, err := http.Get(url + "/buildid/" + id + "/executable")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if out := runStatus(t, 1, "hallmark", "push", "--server", url, "/bin/true"); !strings.Contains(out, "this server takes no files") {
		t.Errorf("push to it: %s", out)
	}
}

// TestServeIsSafe wants the server to listen for other machines only with tokens and TLS.
func TestServeIsSafe(t *testing.T) {
	dir := t.TempDir()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		if out := runStatus(t, 2, "hallmark", "serve", "--listen", address, "--store", dir); !strings.Contains(out, "--insecure") {
			t.Errorf("%s: %s", address, out)
		}
	}
	file := filepath.Join(dir, "tokens")
	secret := strings.TrimSpace(runStatus(t, 0, "hallmark", "serve", "token", "--tokens", file, "--name", "ci", "--role", "upload:ci"))
	runStatus(t, 1, "hallmark", "serve", "token", "--tokens", file, "--name", "ci", "--role", "read")
	runStatus(t, 2, "hallmark", "serve", "token", "--tokens", file, "--name", "x", "--role", "nonsense")
	url, stop := startServe(t, filepath.Join(dir, "store"), "--tokens", file)
	defer stop()
	if out := runStatus(t, 1, "hallmark", "push", "--server", url, "/bin/true"); !strings.Contains(out, "wants a token") {
		t.Errorf("without: %s", out)
	}
	t.Setenv("HALLMARK_TOKEN", secret)
	runStatus(t, 0, "hallmark", "push", "--server", url, "/bin/true")
	runStatus(t, 0, "hallmark", "serve", "token", "--tokens", file, "--name", "ci", "--remove")
	find := testenv.Tool(t, "debuginfod-find")
	t.Setenv("DEBUGINFOD_URLS", url)
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	runStatus(t, 1, find, "executable", strings.Repeat("ab", 20))
}
