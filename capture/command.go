package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// A Command is a program that is started for the recording and waits, before it
// becomes itself, until the events that will watch it are open.
//
// The waiting is done by a copy of the running executable, which must call
// ExecWhenTold first thing in main.
type Command struct {
	cmd  *exec.Cmd
	tid  int      // of the thread that will exec
	path string   // of the program, without symbolic links
	gate *os.File // our end: the thread comes first, a byte opens the gate, text comes back if exec fails
	done chan struct{}
	err  error // of Wait, valid once done is closed
}

// waiterName is the name under which the copy of the executable is started.
const waiterName = "hallmark-waits-to-exec"

// gateFD is the waiter's end of the gate.
const gateFD = 3

// ExecWhenTold does nothing, unless this process was started by StartCommand to
// wait for its turn to become another program. Then it does not return.
func ExecWhenTold() {
	if os.Args[0] != waiterName || len(os.Args) < 3 {
		return
	}
	// The new program gets the events of the thread that execs: it must be the one
	// that is told.
	runtime.LockOSThread()
	gate := os.NewFile(gateFD, "gate")
	syscall.CloseOnExec(gateFD)
	fmt.Fprintf(gate, "%d\n", syscall.Gettid())
	var told [1]byte
	if _, err := io.ReadFull(gate, told[:]); err != nil {
		os.Exit(125) // the recorder is gone
	}
	err := syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	fmt.Fprint(gate, err)
	os.Exit(126)
}

// StartCommand starts the program args[0], looked up in PATH, with the standard
// streams of this process, and lets it wait at the gate. Release lets it go; a
// Command that is never released must be Killed.
func StartCommand(args []string) (*Command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	gate, theirs := os.NewFile(uintptr(ends[0]), "gate"), os.NewFile(uintptr(ends[1]), "gate")
	c := &Command{path: path, gate: gate, done: make(chan struct{})}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		c.path, _ = filepath.Abs(real)
	}
	c.cmd = &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       append([]string{waiterName, path}, args...),
		Stdin:      os.Stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		ExtraFiles: []*os.File{theirs},
	}
	if err := c.cmd.Start(); err != nil {
		gate.Close()
		theirs.Close()
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	theirs.Close() // so that the end of the waiter ends the read
	if _, err := fmt.Fscanln(gate, &c.tid); err != nil {
		c.Kill()
		return nil, fmt.Errorf("starting %s: %w (main must call ExecWhenTold)", args[0], err)
	}
	return c, nil
}

// An ExecError is a program that was found and could not be run: its format, or
// the interpreter that it names.
type ExecError struct{ Program, Reason string }

// Error tells the program and why.
func (e *ExecError) Error() string { return fmt.Sprintf("cannot run %s: %s", e.Program, e.Reason) }

// PID returns the process number, which the program keeps when it is released.
func (c *Command) PID() int { return c.cmd.Process.Pid }

// Release lets the program run. The error is that of execve.
func (c *Command) Release() error {
	defer c.gate.Close()
	if _, err := c.gate.Write([]byte{1}); err != nil {
		return fmt.Errorf("starting %s: %w", c.cmd.Args[2], err)
	}
	// The gate closes without a word when the program has taken over.
	complaint, err := io.ReadAll(io.LimitReader(c.gate, 256))
	if err != nil || len(complaint) > 0 {
		return &ExecError{Program: c.cmd.Args[2], Reason: string(complaint)}
	}
	return nil
}

// Done is closed when the program has ended.
func (c *Command) Done() <-chan struct{} { return c.done }

// Terminate asks the program to end (SIGTERM), unless it has ended.
func (c *Command) Terminate() { c.signal(syscall.SIGTERM) }

// Kill ends the program, and closes the gate if it was never released.
func (c *Command) Kill() {
	c.gate.Close()
	c.signal(syscall.SIGKILL)
}

func (c *Command) signal(sig os.Signal) {
	// It fails only when the program has ended, which is what was wanted.
	_ = c.cmd.Process.Signal(sig)
}

// Wait waits for the end of the program and returns its exit status as a shell
// tells it: 128 + N after signal N.
func (c *Command) Wait() int {
	<-c.done
	var exit *exec.ExitError
	if !errors.As(c.err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
