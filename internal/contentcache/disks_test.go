package contentcache

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// TestDiskThatIsRemoved removes a disk whose number was read, and adds one with the same device number.
func TestDiskThatIsRemoved(t *testing.T) {
	testenv.Root(t)
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	testenv.Need(t, err == nil, "/dev/loop-control")
	defer control.Close()
	const add, remove = 0x4C80, 0x4C81 // LOOP_CTL_ADD and LOOP_CTL_REMOVE of include/uapi/linux/loop.h
	number := 100_000 + os.Getpid()%100_000
	call := func(request uint) {
		t.Helper()
		if err := unix.IoctlSetInt(int(control.Fd()), request, number); err != nil {
			t.Fatal(err)
		}
	}
	sequence := func() uint64 {
		t.Helper()
		var major, minor uint32
		var n uint64
		block := fmt.Sprintf("/sys/block/loop%d/", number)
		for name, to := range map[string][]any{"dev": {&major, &minor}, "diskseq": {&n}} {
			text, err := os.ReadFile(block + name)
			testenv.Need(t, err == nil, "a kernel that numbers the contents of disks (5.15)")
			if _, err := fmt.Sscan(strings.ReplaceAll(string(text), ":", " "), to...); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if got := DiskOf(major, minor); got != n {
				t.Errorf("DiskOf(%d, %d) = %d, want %d", major, minor, got, n)
			}
		}
		call(remove)
		if got := DiskOf(major, minor); got != 0 {
			t.Errorf("a disk that was removed has the number %d", got)
		}
		return n
	}
	call(add)
	first := sequence()
	call(add)
	if second := sequence(); second == first {
		t.Errorf("two disks have the number %d", first)
	}
}
