package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"hallmark/internal/testenv"
)

// TestDirectoriesOfOthers looks for entries that the kernel does not have in its caches, for which it would wait for the
// lock of the directory. It is not waited for where another user can hold it.
func TestDirectoriesOfOthers(t *testing.T) {
	testenv.Root(t)
	top := t.TempDir()
	theirs, own := filepath.Join(top, "theirs"), filepath.Join(top, "own")
	for _, dir := range []string{theirs, own} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	leaveDirs.Store(true)
	defer leaveDirs.Store(false)
	root, err := syscall.Open("/", oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(root)
	ways := map[string]func(string) (int, error){
		"a view of a process": func(path string) (int, error) { return Of(os.Getpid(), false).Open(root, path) },
		"here":                OpenHere,
	}
	for way, open := range ways {
		for path, want := range map[string]error{
			filepath.Join(theirs, "none of "+way): ErrUncached, filepath.Join(own, "none of "+way): syscall.ENOENT,
			filepath.Join(theirs, "file"): nil, filepath.Join(own, "file"): nil,
		} {
			fd, err := open(path)
			if err == nil {
				syscall.Close(fd)
			}
			if !errors.Is(err, want) || want == ErrUncached && !errors.Is(err, ErrForeign) {
				t.Errorf("%s: %s: error %v, want %v", way, path, err, want)
			}
		}
	}
	dir, err := syscall.Open(theirs, oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(dir)
	if IsMountPoint(dir, "none") || IsMountPoint(dir, "file") {
		t.Error("something is mounted that is not")
	}
	if err := syscall.Mount(filepath.Join(own, "file"), filepath.Join(theirs, "file"), "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(filepath.Join(theirs, "file"), 0)
	if !IsMountPoint(dir, "file") {
		t.Error("what is mounted is not seen")
	}
}
