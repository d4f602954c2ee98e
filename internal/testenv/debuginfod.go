package testenv

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Debuginfod starts elfutils' server for the files and the packages of rpm in a directory, and returns its URL
// when it has found the files at all paths of it: "/buildid/ID/executable" for instance.
// It reads each file by itself: one that it has found says nothing of another.
func Debuginfod(t testing.TB, dir string, paths ...string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command(Tool(t, "debuginfod"), "-d", ":memory:", "-p", port, "-F", "-R", dir)
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=", "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = "http://127.0.0.1:" + port
	for _, path := range paths {
		waitFor(t, url+path)
	}
	return url
}

// waitFor returns when the server has what is at the URL.
func waitFor(t testing.TB, url string) {
	t.Helper()
	for range 600 {
		if r, err := http.Get(url); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				http.DefaultClient.CloseIdleConnections()
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: not there after a minute", url)
}
