package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
	"hallmark/profile"
)

// recorder is a hallmark that writes a file, in a process group of its own.
type recorder struct {
	*exec.Cmd
	dir, out string
	stderr   strings.Builder
}

// startRecorder starts a verb that writes to OUT, and returns when it has opened that: from
// then on what is recorded is promised.
func startRecorder(t *testing.T, prepare func(*exec.Cmd), args ...string) *recorder {
	t.Helper()
	r := &recorder{dir: t.TempDir()}
	r.out = filepath.Join(r.dir, "out.pb.gz")
	args = append([]string(nil), args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "OUT", r.out)
	}
	r.Cmd = exec.Command(args[0], args[1:]...)
	r.Stderr = &r.stderr
	r.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if prepare != nil {
		prepare(r.Cmd)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.ProcessState == nil {
			_ = syscall.Kill(-r.Process.Pid, syscall.SIGKILL)
			_ = r.Wait()
		}
	})
	waitForOutput(t, r.Process, r.dir)
	return r
}

// waitForOutput waits until a process has a file of a directory open, or is gone. The file may
// have no name yet.
func waitForOutput(t *testing.T, p *os.Process, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !hasOpen(p, dir); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d opens no file in %s", p.Pid, dir)
		}
	}
}

func hasOpen(p *os.Process, dir string) bool {
	fds := fmt.Sprintf("/proc/%d/fd", p.Pid)
	entries, err := os.ReadDir(fds)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return err != nil || len(entries) == 0
}

// check waits for the end. The profile must be there, whole and alone.
func (r *recorder) check(t *testing.T, when string) {
	t.Helper()
	err := r.Wait()
	if status := r.ProcessState.ExitCode(); status > 0 && status <= 128 && status != 3 {
		t.Errorf("%s: status %d\n%.2000s", when, status, &r.stderr)
	}
	if _, readErr := profile.ReadFile(r.out, profile.ReadOptions{}); readErr != nil {
		t.Errorf("%s: %v; ended with %v\n%s", when, readErr, err, &r.stderr)
	}
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		if e.Name() != filepath.Base(r.out) {
			t.Errorf("%s: %s is left", when, e.Name())
		}
	}
}

// needRecording ends the test where nothing can be recorded.
func needRecording(t *testing.T) {
	t.Helper()
	recording.Lock()
	t.Cleanup(recording.Unlock)
	ok := exec.Command("hallmark", "record", "-o", filepath.Join(t.TempDir(), "x.pb.gz"), "--", "true").Run() == nil
	testenv.Need(t, ok, "perf events (see hallmark doctor)")
}

// moments are how long to wait before a signal, from when the output is open: while the command
// is prepared, when it starts, while it runs, while the profile is written.
func moments() (list []time.Duration) {
	n := time.Duration(6)
	switch {
	case testenv.Thorough():
		n = 24
	case testing.Short():
		n = 4
	}
	for i := range n {
		list = append(list, i*i*i*240*time.Millisecond/(n*n*n))
	}
	return list
}

// TestSignalsLoseNothing sends signals to recordings at many moments, as timeout(1), a
// terminal that is closed, and hands that press Ctrl-C do. The profile is written in every case.
func TestSignalsLoseNothing(t *testing.T) {
	t.Parallel()
	needRecording(t)
	for name, test := range map[string]struct {
		group   bool // to the command as well
		command []string
		signals []syscall.Signal
	}{
		"timeout":         {true, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		"two to hallmark": {false, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		"terminal":        {true, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
		"Ctrl-C twice":    {true, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}},
		"Ctrl-\\ twice":   {false, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGQUIT, syscall.SIGQUIT}},
		"Ctrl-\\ at once": {false, []string{"sleep", "600"}, []syscall.Signal{syscall.SIGQUIT}},
		"at the end":      {false, []string{"true"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, moment := range moments() {
				r := startRecorder(t, nil, append([]string{"hallmark", "record", "-o", "OUT", "--"}, test.command...)...)
				time.Sleep(moment)
				for _, sig := range test.signals {
					_ = r.Process.Signal(sig) // it may have ended
					if test.group {
						_ = syscall.Kill(-r.Process.Pid, sig)
					}
				}
				r.check(t, moment.String())
				if status := r.ProcessState.ExitCode(); test.command[0] == "sleep" && status <= 128 {
					t.Errorf("%v: status %d, want that of a command that a signal ended\n%s", moment, status, &r.stderr)
				}
			}
		})
	}
}

// TestSignalsOfSystemRecording sends two signals to recordings of all processes.
func TestSignalsOfSystemRecording(t *testing.T) {
	testenv.Root(t)
	needRecording(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		for _, moment := range []time.Duration{0, 100 * time.Millisecond} {
			r := startRecorder(t, nil, "hallmark", "record", "-a", "-o", "OUT")
			time.Sleep(moment)
			_ = r.Process.Signal(sig)
			_ = r.Process.Signal(sig)
			r.check(t, fmt.Sprintf("%v after %v", sig, moment))
			if info, err := os.Stat(r.out); err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("the profile has mode %v", info.Mode())
			}
		}
	}
}

// TestHangUpThatIsIgnored lets nohup(1) protect a recording: it goes on.
func TestHangUpThatIsIgnored(t *testing.T) {
	needRecording(t)
	r := startRecorder(t, nil, "sh", "-c", `trap "" HUP; exec hallmark record -o OUT -- sleep 600`)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "SigIgn:")
	ignored, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	if err != nil || ignored&1 == 0 {
		t.Errorf("signals ignored: %#x, error %v: want SIGHUP", ignored, err)
	}
	_ = syscall.Kill(-r.Process.Pid, syscall.SIGTERM)
	r.check(t, "after SIGTERM")
}

// TestClosedErrors records while nobody reads standard error, which is a pipe or a terminal.
func TestClosedErrors(t *testing.T) {
	t.Parallel()
	needRecording(t)
	t.Run("pipe", func(t *testing.T) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		r := startRecorder(t, func(c *exec.Cmd) { c.Stderr = writer }, "hallmark", "record", "-o", "OUT", "--", "sh", "-c", "exit 3")
		writer.Close()
		r.check(t, "a pipe that nobody reads")
		if status := r.ProcessState.ExitCode(); status != 3 {
			t.Errorf("status %d, want 3: %v", status, r.ProcessState)
		}
	})
	for _, moment := range moments()[:4] {
		t.Run("terminal "+moment.String(), func(t *testing.T) {
			terminal, line := openTerminal(t)
			r := startRecorder(t, func(c *exec.Cmd) {
				c.Stdin, c.Stdout, c.Stderr = line, line, line
				c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			}, "hallmark", "record", "-o", "OUT", "--", "sleep", "600")
			line.Close()
			time.Sleep(moment)
			terminal.Close() // SIGHUP to all in it, and EIO from then on
			r.check(t, "a terminal that is closed")
		})
	}
}

// openTerminal returns both ends of a pseudoterminal: pty(7).
func openTerminal(t *testing.T) (terminal, line *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Need(t, err == nil, "/dev/ptmx")
	t.Cleanup(func() { terminal.Close() })
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return terminal, line
}

// TestExecEndsInGoodOrder sends two signals to a watch: all reported events are in the file.
func TestExecEndsInGoodOrder(t *testing.T) {
	needRecording(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		r := startRecorder(t, nil, "hallmark", "exec", "--json", "-o", "OUT", "--", "sh", "-c", "cat OUT; kill -STOP $$; :")
		waitForStop(t, r.Process.Pid)
		_ = r.Process.Signal(sig)
		_ = r.Process.Signal(sig)
		_ = syscall.Kill(-r.Process.Pid, syscall.SIGCONT)
		err := r.Wait()
		if r.ProcessState.ExitCode() < 0 {
			t.Errorf("%v: %v", sig, err)
		}
		b, _ := os.ReadFile(r.out)
		if !strings.Contains(string(b), `"process":"cat"`) || !strings.Contains(r.stderr.String(), "seen by") {
			t.Errorf("%v: told %q\n%s", sig, b, &r.stderr)
		}
		if info, err := os.Stat(r.out); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("the file has mode %v", info.Mode())
		}
	}
}

// waitForStop waits until a child of a process has stopped.
func waitForStop(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, name := range children {
			b, _ := os.ReadFile(name)
			for _, child := range strings.Fields(string(b)) {
				if status, _ := os.ReadFile("/proc/" + child + "/status"); strings.Contains(string(status), "T (stopped)") {
					return
				}
			}
		}
	}
	t.Fatal("no child has stopped")
}

// TestQuitPrintsNoStacks sends Ctrl-\ to a verb that nothing ends in good order: it ends as by any
// signal, without the stacks of Go and their status, which is that of a wrong command line.
func TestQuitPrintsNoStacks(t *testing.T) {
	t.Parallel()
	in, more, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer more.Close()
	cmd := exec.Command("hallmark", "report", "-")
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=", "GOTRACEBACK=")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := more.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "a verb that reads", func() bool {
		n, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		return n == 0 || err != nil
	})
	_ = cmd.Process.Signal(syscall.SIGQUIT)
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 128+int(syscall.SIGQUIT) || out.Len() > 0 {
		t.Errorf("status %d\n%s", status, &out)
	}
}
