package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSymbolizeInPipe checks that lines come through as they are written, and that the
// last words of a program that got the same Ctrl-C do so too.
func TestSymbolizeInPipe(t *testing.T) {
	p := startSymbolize(t)
	io.WriteString(p.stdin, "first\n")
	out := bufio.NewReader(p.stdout)
	if line, err := out.ReadString('\n'); line != "first\n" {
		t.Fatalf("the first line came as %q, %v", line, err)
	}
	p.interrupt(t, "last words")
	if rest, err := io.ReadAll(out); string(rest) != "last words" {
		t.Errorf("the last words came as %q, %v", rest, err)
	}
	p.wait(t)
}

// TestSymbolizeToFile checks the same of a file, which is there when it is whole.
func TestSymbolizeToFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	p := startSymbolize(t, "-o", name)
	io.WriteString(p.stdin, "first\n")
	waitForOutput(t, p.cmd.Process, dir)
	if _, err := os.Stat(name); err == nil {
		t.Error("half of the file has its name")
	}
	p.interrupt(t, "last words")
	p.wait(t)
	if got, err := os.ReadFile(name); string(got) != "first\nlast words" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// symbolizeProcess is a running 'hallmark symbolize' of standard input.
type symbolizeProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr strings.Builder
}

func startSymbolize(t *testing.T, args ...string) *symbolizeProcess {
	t.Helper()
	p := &symbolizeProcess{cmd: exec.Command("hallmark", append([]string{"symbolize"}, args...)...)}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// interrupt sends Ctrl-C, and then the end of the input.
func (p *symbolizeProcess) interrupt(t *testing.T, end string) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.WriteString(p.stdin, end)
	p.stdin.Close()
}

func (p *symbolizeProcess) wait(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, &p.stderr)
	}
}
