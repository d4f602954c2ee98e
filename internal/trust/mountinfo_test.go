package trust

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMountsAreReadWhenTheyChange reads the mounts again and again, and mounts something.
func TestMountsAreReadWhenTheyChange(t *testing.T) {
	elsewhere, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	dir := ownTree(t)
	read := func() mounts {
		t.Helper()
		m, err := readMounts()
		if err != nil || len(m) == 0 {
			t.Fatalf("%d mounts (%v)", len(m), err)
		}
		return m
	}
	before := read()
	if !before.isTrueAt(dir) || elsewhere.isTrueAt(dir) {
		t.Errorf("the mount of this thread's namespace is there: %v, in another one: %v", before.isTrueAt(dir), elsewhere.isTrueAt(dir))
	}
	if again := read(); &again[0] != &before[0] {
		t.Error("the mounts were read again, and nothing had changed")
	}
	below := mkdir(t, filepath.Join(dir, "below"), 0o755, 0)
	mountOn(t, "tmpfs", below, 0, "")
	if !read().isTrueAt(below) {
		t.Error("what was mounted since is not known")
	}
	if err := unix.Unmount(below, 0); err != nil {
		t.Fatal(err)
	}
	if read().isTrueAt(below) {
		t.Error("what was unmounted is still known")
	}
}
