package debuginfo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// TestLockOfDeadProcess lets another process take the lock of an index and end without
// giving it back.
func TestLockOfDeadProcess(t *testing.T) {
	c := &Indexes{Dir: t.TempDir()}
	id, err := buildid.Parse("0011223344")
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.Path(Origin{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(testenv.Tool(t, "flock"), strings.TrimSuffix(path, suffix)+lockSuffix, "sh", "-c", "echo locked; exec sleep 60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*lockInterval)
	defer cancel()
	if _, err := c.lock(ctx, Origin{ID: id}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another process has it: %v", err)
	}
	if err := syscall.Kill(-other.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	unlock, err := c.lock(t.Context(), Origin{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if left, err := os.ReadDir(c.Dir); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLockExcludes lets many want a lock, whose file goes away each time.
func TestLockExcludes(t *testing.T) {
	c := &Indexes{Dir: filepath.Join(t.TempDir(), "index")}
	id, err := buildid.Parse("0011223344")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	held := make(chan bool, 1)
	for range 8 {
		wait.Go(func() {
			for range 5 {
				unlock, err := c.lock(t.Context(), Origin{ID: id})
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case held <- true:
				default:
					t.Error("two have the lock")
				}
				time.Sleep(time.Millisecond)
				<-held
				unlock()
			}
		})
	}
	wait.Wait()
}
