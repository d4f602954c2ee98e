package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/proftest"
)

// TestViewServesUntilCtrlC takes a running 'hallmark view' through its life.
func TestViewServesUntilCtrlC(t *testing.T) {
	cmd := exec.Command("hallmark", "view", "--no-browser", proftest.Save(t, proftest.Mixed()))
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
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	if status, page := fetch(t, client, words[1]); status != http.StatusOK {
		t.Errorf("%s: status %d:\n%s", words[1], status, page)
	}
	pages, _, _ := strings.Cut(words[1], "?")
	if _, page := fetch(t, client, pages+"api/functions"); !strings.Contains(page, "vfs_read") {
		t.Errorf("the table has no function of the profile:\n%s", page)
	}
	if status, page := fetch(t, http.DefaultClient, pages+"api/functions"); status != http.StatusForbidden {
		t.Errorf("without the key: status %d:\n%s", status, page)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("after Ctrl-C: %v\n%s", err, &stderr)
	}
}

func fetch(t *testing.T, client *http.Client, url string) (status int, page string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
