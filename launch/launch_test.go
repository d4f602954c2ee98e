package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hallmark/internal/testenv"
)

// noPartner is in the environment of a process that starts a command and never calls
// ExecWhenReady.
const noPartner = "HALLMARK_TEST_NO_PARTNER"

func startWithoutPartner() {
	fmt.Println("main")
	_, err := Start([]string{"true"})
	fmt.Println(err)
	os.Exit(0)
}

// TestCommandWithoutPartner starts a command in a program whose main does not know of waiting:
// it is refused, and the program does not start itself again and again.
func TestCommandWithoutPartner(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), noPartner+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(20*time.Second, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer watchdog.Stop()
	if err := c.Wait(); err != nil {
		t.Errorf("it did not end: %v", err)
	}
	if n := strings.Count(out.String(), "main\n"); n != 1 || !strings.Contains(out.String(), "main must call launch.ExecWhenReady") {
		t.Errorf("main ran %d times, and printed %.200q", n, out.String())
	}
}

// TestSignalBeforeRelease sends signals to a command that waits: it ends by them in its turn.
func TestSignalBeforeRelease(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // by nohup, of the command as well
			continue
		}
		c, err := Start([]string{testenv.Tool(t, "sleep"), "600"})
		if err != nil {
			t.Fatal(err)
		}
		c.signal(sig)
		if err := syscall.Kill(c.PID(), 0); err != nil {
			t.Errorf("%v: it is gone: %v", sig, err)
		}
		if err := c.Release(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
		if status := c.Wait(); status != 128+int(sig) {
			t.Errorf("%v: status %d", sig, status)
		}
	}
}

// TestKillBeforeRelease kills a command that waits: that is how it ended, and no failure of the
// recording.
func TestKillBeforeRelease(t *testing.T) {
	c, err := Start([]string{testenv.Tool(t, "sleep"), "600"})
	if err != nil {
		t.Fatal(err)
	}
	c.signal(syscall.SIGKILL)
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if status := c.Wait(); status != 128+int(syscall.SIGKILL) {
		t.Errorf("status %d", status)
	}
}

// TestOutputOfCommand gives a command another standard output.
func TestOutputOfCommand(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	c, err := StartWith([]string{"echo", "printed"}, Options{Stdout: writer})
	writer.Close()
	if err == nil {
		err = c.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, err := reader.Read(b); string(b[:n]) != "printed\n" {
		t.Errorf("%q, error %v", b[:n], err)
	}
	c.Wait()
}

// TestCommand compares how programs end with what the shell reports of them.
func TestCommand(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 42"}, 42},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM)},
	} {
		c, err := Start(test.args)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		if got := c.Wait(); got != test.status {
			t.Errorf("%q ended with %d, want %d", test.args, got, test.status)
		}
	}
	if _, err := Start([]string{"no-such-program-anywhere"}); err == nil {
		t.Error("a program that does not exist was started")
	}
	notExecutable := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notExecutable, []byte("\x7fELF no"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Start([]string{notExecutable})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Release(); err == nil || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("a damaged program: %v", err)
	}
	<-c.Done()
}

// TestMain makes the test binary its own waiting copy, as main does for hallmark.
func TestMain(m *testing.M) {
	if os.Getenv(noPartner) != "" {
		startWithoutPartner()
	}
	ExecWhenReady()
	goleak.VerifyTestMain(m)
}
