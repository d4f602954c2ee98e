package capture

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
)

// TestRecordPassingKernelCode records a program that loads code into the kernel,
// runs it and ends: when names are read, the code is gone.
func TestRecordPassingKernelCode(t *testing.T) { eachBackend(t, recordPassingKernelCode) }

func recordPassingKernelCode(t *testing.T, backend Backend) {
	testenv.Root(t)
	file := filepath.Join(t.TempDir(), "bpfloop")
	proctest.Compile(t, "gcc", file, "-O1", "testdata/bpfloop.c")
	t.Run("loaded while recording", func(t *testing.T) {
		c, err := launch.Start([]string{file, "300"})
		if err != nil {
			t.Fatal(err)
		}
		p, _, _ := recordSession(t, t.Context(), Options{Backend: backend, Command: c})
		checkInLoop(t, p, c.PID())
	})
	// The code may go with another process, if that looks at all there is just then:
	// so everything is recorded.
	t.Run("loaded before", func(t *testing.T) {
		cmd := exec.Command(file, "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			err := cmd.Wait()
			cancel()
			done <- err
		}()
		p, _, _ := recordSession(t, ctx, Options{Backend: backend, SystemWide: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		checkInLoop(t, p, cmd.Process.Pid)
	})
}

// checkInLoop wants most samples of a process in the program of bpfloop.c, by its name.
func checkInLoop(t *testing.T, p *pprof.Profile, pid int) {
	t.Helper()
	found, all := int64(0), int64(0)
	for _, s := range p.Sample {
		if _, of := profile.Process(s); of != int64(pid) {
			continue
		}
		all += s.Value[0]
		for c := range profile.Calls(s) {
			if strings.HasSuffix(c.Name(), "_hallmark_loop") {
				found += s.Value[0]
				break
			}
		}
	}
	checkMost(t, "the BPF program", found, all, 0.3)
}
