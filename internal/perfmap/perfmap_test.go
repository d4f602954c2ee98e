package perfmap

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// TestWhoseMap refuses a map that was there before the process, and one that is a
// link: /tmp is anybody's.
func TestWhoseMap(t *testing.T) {
	started := time.Now().Add(-time.Second)
	name := filepath.Join(t.TempDir(), "perf-1.map")
	if err := os.WriteFile(name, []byte("1000 10 f\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := open(name, os.Getpid(), started); err != nil {
		t.Errorf("a map that is younger than the process: %v", err)
	} else {
		f.Close()
	}
	link := filepath.Join(t.TempDir(), "perf-2.map")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if f, err := open(link, os.Getpid(), started); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if f, err := open(name, os.Getpid(), started); err == nil {
		f.Close()
		t.Error("a map that is older than the process was taken")
	}
}

// TestForeignMap has what another user, or no process at all, left there.
func TestForeignMap(t *testing.T) {
	name := filepath.Join(t.TempDir(), "perf-1.map")
	for what, write := range map[string]func() error{
		"a FIFO": func() error { return syscall.Mkfifo(name, 0o644) },
		"the file of another user": func() error {
			testenv.Root(t)
			return errors.Join(os.WriteFile(name, nil, 0o644), os.Chown(name, 65534, 65534))
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if f, err := open(name, os.Getpid(), time.Time{}); err == nil {
			f.Close()
			t.Errorf("%s was taken", what)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartTime compares with the time at which a process was really started.
func TestStartTime(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	const tolerance = 30 * time.Millisecond // the kernel counts in 10 ms
	got, err := StartTime(cmd.Process.Pid)
	if err != nil || got.Before(before.Add(-tolerance)) || got.After(after.Add(tolerance)) {
		t.Errorf("started between %v and %v, /proc gives %v, %v", before, after, got, err)
	}
}
