package blobtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// s3Program returns the path of versitygw, an S3 server over a directory. Debian has none, and building
// it takes minutes: the thorough run does it, and others use the one in PATH.
func s3Program(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("versitygw"); err == nil {
		return path
	}
	const version = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	if !testenv.Thorough() {
		t.Skipf("NOT CHECKED: needs versitygw in PATH (go install %s), or HALLMARK_THOROUGH=1", version)
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "install", version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	testenv.Need(t, err == nil, fmt.Sprintf("versitygw, which cannot be built: %v\n%s", err, out))
	return filepath.Join(dir, "versitygw")
}

// StartS3 starts versitygw, and returns its URL. Its credentials are in the environment of the test.
func StartS3(t testing.TB) (endpoint string) {
	t.Helper()
	path := s3Program(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "user")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "password")
	cmd := exec.Command(path, "--access", "user", "--secret", "password", "--port", address, "posix", "--sidecar", t.TempDir(), t.TempDir())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return "http://" + address
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("versitygw does not listen")
	return ""
}
