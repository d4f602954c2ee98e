package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal is a terminal whose user is the test.
type pseudoTerminal struct {
	master, slave *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	came *sync.Cond
}

func openScreen(t *testing.T) *pseudoTerminal {
	t.Helper()
	master, slave := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	p := &pseudoTerminal{master: master, slave: slave}
	p.came = sync.NewCond(&p.mu)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.seen.Write(b[:n])
			p.mu.Unlock()
			p.came.Broadcast()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { slave.Close() })
	return p
}

// await waits until the screen has shown some text since the last call, and returns what it has.
func (p *pseudoTerminal) await(t *testing.T, text string) string {
	t.Helper()
	late := time.AfterFunc(time.Minute, p.came.Broadcast)
	defer late.Stop()
	start := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !strings.Contains(p.seen.String(), text) {
		if time.Since(start) > time.Minute {
			t.Fatalf("the screen does not show %q, but %q", text, p.seen.String())
		}
		p.came.Wait()
	}
	seen := p.seen.String()
	p.seen.Reset()
	return seen
}

func (p *pseudoTerminal) mode(t *testing.T) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// busyProcess returns the number of a process that has something to be sampled.
func busyProcess(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid)
}

// TestTopOnTerminal presses keys, and ends it by a key and by signals. The terminal is what it was
// each time.
func TestTopOnTerminal(t *testing.T) {
	needRecording(t)
	pid := busyProcess(t)
	for _, end := range []string{"q", "\x03", "TERM", "HUP", "QUIT"} {
		t.Run(strconv.Quote(end), func(t *testing.T) {
			p := openScreen(t)
			before := p.mode(t)
			cmd := exec.Command("hallmark", "top", "-p", pid, "--interval", "200ms")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := false
			defer func() {
				if !ended {
					cmd.Process.Kill()
					cmd.Wait()
				}
			}()
			p.await(t, "\x1b[?1049h")
			p.await(t, "coverage: ")
			if during := p.mode(t); during == before {
				t.Error("keys are not read one by one")
			}
			if end == "q" {
				p.master.WriteString("b")
				p.await(t, "identity")
				p.master.WriteString("p")
				p.await(t, "pids")
				p.master.WriteString("/no such process\r")
				p.await(t, "nothing")
				p.master.WriteString("\x1b")
				p.await(t, "f functions")
			}
			switch end {
			case "TERM":
				cmd.Process.Signal(syscall.SIGTERM)
			case "HUP":
				cmd.Process.Signal(syscall.SIGHUP)
			case "QUIT":
				cmd.Process.Signal(syscall.SIGQUIT)
			default:
				p.master.WriteString(end)
			}
			err := cmd.Wait()
			ended = true
			p.await(t, "\x1b[?25h\x1b[?1049l")
			if after := p.mode(t); after != before {
				t.Errorf("the terminal is %+v, and was %+v", after, before)
			}
			if err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// TestTopPlain reads what is printed where there is no terminal.
func TestTopPlain(t *testing.T) {
	needRecording(t)
	pid := busyProcess(t)
	out, err := exec.Command("hallmark", "top", "-p", pid, "--interval", "300ms", "--rounds", "2", "--top", "3").CombinedOutput()
	if err != nil || strings.Count(string(out), "hallmark top: process "+pid+", round ") != 2 || strings.Contains(string(out), "\x1b") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command("hallmark", "top", "-p", pid, "--interval", "300ms", "--rounds", "2", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(out))
	for round := 1; round <= 2; round++ {
		var got struct {
			Round   int
			Total   int64
			Samples int64
		}
		if err := d.Decode(&got); err != nil || got.Round != round {
			t.Errorf("round %d is %+v: %v", round, got, err)
		}
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"--table", "x"}, {"--rounds", "-1"}, {"--container", "x", "-p", pid}} {
		if err := exec.Command("hallmark", append([]string{"top"}, args...)...).Run(); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
