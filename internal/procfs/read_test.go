package procfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRead compares with os.ReadFile: files of the kernel and of many sizes, and what is none.
func TestRead(t *testing.T) {
	paths := []string{"/proc/self/comm", "/proc/self/auxv", "/proc/self/cmdline", "/proc/self/environ", "/proc/filesystems", "/dev/null"}
	for _, size := range []int{0, 1, 1023, 1024, 1025, 2048, 100_000} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, bytes.Repeat([]byte("0123456"), size)[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for _, path := range paths {
		want, wantErr := os.ReadFile(path)
		got, err := read(path)
		if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %d bytes (%v), want %d (%v)", path, len(got), err, len(want), wantErr)
		}
	}
	for path, want := range map[string]error{"/proc/self/none": os.ErrNotExist, "/proc/self": nil} {
		if _, err := read(path); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
