package mounts

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/testenv"
)

// checkOpenMapFile opens the file of this test's own code by the number that /proc has for it.
func checkOpenMapFile(t *testing.T) {
	t.Helper()
	self, err := os.Readlink("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(maps), " ")
	start, end, _ := strings.Cut(first, "-")
	var limits [2]uint64
	for i, word := range []string{start, end} {
		if limits[i], err = strconv.ParseUint(word, 16, 64); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := OpenMapFile(self, limits[0], limits[1])
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	var have, want syscall.Stat_t
	if err := syscall.Fstat(fd, &have); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Stat("/proc/self/exe", &want); err != nil {
		t.Fatal(err)
	}
	if have.Ino != want.Ino || have.Dev != want.Dev {
		t.Errorf("inode %d of device %#x, want %d of %#x", have.Ino, have.Dev, want.Ino, want.Dev)
	}
}

// TestOpenMapFile opens a file in the instance of procfs that nobody else has, and in another PID namespace
// than that of /proc, whose numbers are others, by /proc.
func TestOpenMapFile(t *testing.T) {
	testenv.Root(t)
	checkOpenMapFile(t)
	inside := os.Getenv("HALLMARK_TEST_PID_NAMESPACE") != ""
	if own := ownProc() >= 0; own == inside {
		t.Errorf("an instance of its own: %v; in another PID namespace: %v", own, inside)
	}
	if inside {
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Tool(t, "unshare"), "--pid", "--fork", program, "-test.run=^TestOpenMapFile$", "-test.v")
	cmd.Env = append(os.Environ(), "HALLMARK_TEST_PID_NAMESPACE=1")
	if msg, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(msg), "--- PASS: TestOpenMapFile") {
		t.Errorf("in another PID namespace: %v\n%s", err, msg)
	}
}
