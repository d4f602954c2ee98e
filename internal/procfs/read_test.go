package procfs

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// TestRead compares with os.ReadFile: files of many sizes, and what is none.
func TestRead(t *testing.T) {
	for _, path := range []string{"/proc/self/comm", "/proc/self/auxv", "/proc/self/cmdline", "/proc/self/mountinfo", "/proc/kallsyms", "/proc/modules", "/dev/null"} {
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
