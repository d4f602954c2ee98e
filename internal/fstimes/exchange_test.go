package fstimes

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// TestCanForge asks of file systems by their numbers.
func TestCanForge(t *testing.T) {
	for magic, want := range map[int64]bool{0xef53: true, 0x58465342: true, Overlay: true, Btrfs: true, 0x73717368: false, FUSE: true, 0x01021994: true, 0x1234: true} {
		if got := CanForge(magic); got != want {
			t.Errorf("%#x: %v, want %v", magic, got, want)
		}
	}
}

// TestMoveExtents has ext4 move a block between two files of this user: the content of one changes,
// and none of its times. That is why the list says so, and the test skips where it is not so.
func TestMoveExtents(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, uint32(fs.Type) == 0xef53, "a directory for temporary files on ext4")
	const size = 4096
	names := []string{filepath.Join(dir, "donor"), filepath.Join(dir, "orig")}
	for _, name := range names {
		if err := os.WriteFile(name, bytes.Repeat([]byte{'x'}, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	donor, orig := openSynced(t, names[0]), openSynced(t, names[1])
	time.Sleep(2 * Delay())
	before, err := donor.Stat()
	if err != nil {
		t.Fatal(err)
	}
	// struct move_extent and EXT4_IOC_MOVE_EXT of fs/ext4/ext4.h
	move := struct {
		reserved, donor             uint32
		origStart, donorStart, n, m uint64
	}{donor: uint32(donor.Fd()), n: 1}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, orig.Fd(), 0xc028660f, uintptr(unsafe.Pointer(&move))); errno != 0 {
		t.Skipf("ext4 exchanges no block of these files: %v", errno)
	}
	drop(donor)
	got := make([]byte, size)
	if _, err := donor.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	after, err := donor.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if got[0] == 'x' {
		t.Skip("this kernel changes no content so")
	}
	was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if was.Mtim != is.Mtim || was.Ctim != is.Ctim {
		t.Errorf("the times changed with the content, so they could be believed: %v, %v", was, is)
	}
}

// drop drops the pages of a file from memory.
func drop(f *os.File) {
	_ = f.Sync()
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func openSynced(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	drop(f)
	return f
}
