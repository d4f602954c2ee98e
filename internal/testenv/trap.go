package testenv

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// Trap makes a pipe with this name, which nobody may open until the test ends: the test fails
// if anybody does, even without waiting for its other end.
func Trap(t testing.TB, path string) string {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	watch(t, path, syscall.IN_OPEN, path+" was opened, and not only looked at")
	return path
}

// Terminal makes a device node that makes a terminal for whoever opens it, with a file system
// of its own for the terminals: the test fails if anybody has one made until it ends. It needs
// root.
func Terminal(t testing.TB) (path string) {
	t.Helper()
	Root(t)
	dir := t.TempDir()
	path, terminals := filepath.Join(dir, "ptmx"), filepath.Join(dir, "pts")
	const device = 5<<8 | 2 // Documentation/filesystems/devpts.rst
	err := errors.Join(syscall.Mknod(path, syscall.S_IFCHR|0o666, device), syscall.Chmod(path, 0o666), syscall.Mkdir(terminals, 0o755))
	if err == nil {
		err = syscall.Mount("devpts", terminals, "devpts", 0, "ptmxmode=0666")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(terminals, syscall.MNT_DETACH) })
	watch(t, terminals, syscall.IN_CREATE, path+" was opened, which made a terminal")
	return path
}

// watch fails the test with a text if something happens to a file before the test ends:
// inotify(7).
func watch(t testing.TB, path string, event uint32, text string) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer syscall.Close(fd)
		events := make([]byte, 4096)
		n, err := syscall.Read(fd, events)
		if err != nil && err != syscall.EAGAIN {
			t.Errorf("watching %s: %v", path, err)
		}
		for at := 0; at+syscall.SizeofInotifyEvent <= n; {
			e := (*syscall.InotifyEvent)(unsafe.Pointer(&events[at]))
			if e.Mask&event != 0 {
				t.Error(text)
				break
			}
			at += syscall.SizeofInotifyEvent + int(e.Len)
		}
	})
	if _, err := syscall.InotifyAddWatch(fd, path, event); err != nil {
		t.Fatal(err)
	}
}
