package capture

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// noPartner is in the environment of a process that starts a command and never calls
// ExecWhenTold.
const noPartner = "HALLMARK_TEST_NO_PARTNER"

func startWithoutPartner() {
	fmt.Println("main")
	_, err := StartCommand([]string{"true"})
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
	if n := strings.Count(out.String(), "main\n"); n != 1 || !strings.Contains(out.String(), "main must call capture.ExecWhenTold") {
		t.Errorf("main ran %d times, and printed %.200q", n, out.String())
	}
}

// TestSignalBeforeRelease sends signals to a command that waits: it ends by them in its turn.
func TestSignalBeforeRelease(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // by nohup, of the command as well
			continue
		}
		c, err := StartCommand([]string{testenv.Tool(t, "sleep"), "600"})
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
	c, err := StartCommand([]string{testenv.Tool(t, "sleep"), "600"})
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
	c, err := StartCommandWith([]string{"echo", "printed"}, CommandOptions{Stdout: writer})
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
