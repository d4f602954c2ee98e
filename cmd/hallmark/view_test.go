package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/proftest"
)

// TestViewServesUntilCtrlC takes a running 'hallmark view' through its life.
func TestViewServesUntilCtrlC(t *testing.T) {
	cmd := exec.Command("hallmark", "view", "--no-browser", proftest.Save(t, proftest.Mixed()))
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()

	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no line on standard output: %v\n%s", err, &stderr)
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "Serving" {
		t.Fatalf("first line is %q", line)
	}
	if page := fetch(t, words[1]+"top"); !strings.Contains(page, "vfs_read") {
		t.Errorf("the table has no function of the profile:\n%s", page)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("after Ctrl-C: %v\n%s", err, &stderr)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
