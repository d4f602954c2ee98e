package mounts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// stacked is in the environment of a process that mounts a directory on top of itself again and again.
const stacked = "HALLMARK_TEST_STACKED"

func init() {
	dir := os.Getenv(stacked)
	if dir == "" {
		return
	}
	for range 8000 {
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	fmt.Scanln(new(string))
	os.Exit(0)
}

// TestManyMounts has a process with mounts on top of each other, which the kernel takes long to list.
// Nobody waits for more than the bounds, and nothing counts as answering meanwhile.
func TestManyMounts(t *testing.T) {
	testenv.Root(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stacked+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil || cmd.Start() != nil {
		t.Fatal("cannot start it")
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(filepath.Join("/proc", fmt.Sprint(cmd.Process.Pid), "mountinfo"), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	began := time.Now()
	if _, err := readAll(fd, time.Time{}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	t.Logf("the kernel takes %v", whole)
	if whole < 4*tableTime {
		t.Skip("the kernel is quick here")
	}
	view := Of(cmd.Process.Pid, false)
	least := whole // of five: a busy machine makes some of them longer
	for i := range 5 {
		began := time.Now()
		if table, inTime := view.read(); inTime || len(table.list) != 0 {
			t.Errorf("look %d: %d mounts after %v", i, len(table.list), time.Since(began))
		}
		least = min(least, time.Since(began))
	}
	if least > whole/2 {
		t.Errorf("each look took %v and more, where the kernel takes %v", least, whole)
	}
	others = allowance{}
	if !Foreign() {
		t.Error("a namespace that cannot be read has no foreign file system")
	}
}

// TestAllowance spends the time for the mounts of others, and waits for more.
func TestAllowance(t *testing.T) {
	var a allowance
	now := time.Now()
	if !a.isLeft(now) {
		t.Fatal("nothing is left at first")
	}
	a.spend(tablesTime + tableTime)
	if a.isLeft(now.Add(time.Millisecond)) {
		t.Error("time is left that was spent")
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := a.read(int(f.Fd())); err != errSlow {
		t.Errorf("%d bytes are read without time: %v", len(text), err)
	}
	if !a.isLeft(now.Add(2 * tablesPart * tableTime)) {
		t.Error("no time is left later")
	}
}
