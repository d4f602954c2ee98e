// Package launch starts programs that wait, before they become themselves, until whoever records
// them or follows their executions is ready. So nothing of a program is missed.
//
// A program that starts others this way calls [ExecWhenReady] first in main:
//
//	func main() {
//		launch.ExecWhenReady()
//		c, err := launch.Start([]string{"make"})
//		...
//		err = c.Release() // or capture.Session.Run, which releases it
//	}
package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"hallmark/internal/aside"
)

// A Command is a program that was started and waits for [Command.Release].
//
// The waiting is done by a copy of the running executable, which must call
// ExecWhenReady first thing in main.
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

// execsWhenReady says that ExecWhenReady was called: a copy of this process would wait.
var execsWhenReady atomic.Bool

// ExecWhenReady does nothing, unless this process was started by Start to
// wait for its turn to become another program, or to look at files that may not answer. Then
// it does not return. A program that does not call it cannot look at the files of such file
// systems (FUSE, a network): their reason is file-unresponsive.
func ExecWhenReady() {
	aside.Serve()
	execsWhenReady.Store(true)
	if os.Args[0] != waiterName || len(os.Args) < 3 {
		return
	}
	// The new program gets the events of the thread that execs: it must be the one
	// that is reported.
	runtime.LockOSThread()
	came := holdSignals()
	gate := os.NewFile(gateFD, "gate")
	syscall.CloseOnExec(gateFD)
	fmt.Fprintf(gate, "%d\n", syscall.Gettid())
	var told [1]byte
	if _, err := io.ReadFull(gate, told[:]); err != nil {
		os.Exit(125) // the recorder is gone
	}
	raise(came)
	err := syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	fmt.Fprint(gate, err)
	os.Exit(126)
}

// holdSignals keeps signals that end a process, such as those of a terminal to all of its
// processes, until the program's turn has come: whoever watches it can prepare for it, and learns
// how it ended. A new program gets the signals as they were; those that are ignored stay so.
func holdSignals() chan os.Signal {
	came := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(came, sig)
		}
	}
	return came
}

// raise ends the process by the first signal that came, if any did. None is held from here on.
func raise(came chan os.Signal) {
	signal.Stop(came) // and those that have come are there
	select {
	case sig := <-came:
		if sig == syscall.SIGQUIT { // by which Go would dump its stacks
			restoreDefault(syscall.SIGQUIT)
		}
		_ = syscall.Kill(os.Getpid(), sig.(syscall.Signal))
		time.Sleep(time.Second)
	default:
	}
}

// restoreDefault has the kernel end the process by a signal, and not Go's runtime: rt_sigaction(2)
// with SIG_DFL in the kernel's struct sigaction, which is all zeros.
func restoreDefault(sig syscall.Signal) {
	var action struct{ handler, flags, restorer, mask uint64 }
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
}

// errNoPartner is the error of a program that could not be its own waiter: its copy would start
// a copy of itself, and so on.
var errNoPartner = errors.New("main must call launch.ExecWhenReady first")

// Options say how a program is started. The zero value is right.
type Options struct {
	Stdout *os.File // of the program; that of this process when nil
}

// Start starts the program args[0], looked up in PATH, with the standard
// streams of this process, and lets it wait at the gate. Release lets it go; a
// Command that is never released must be Killed. It is an error if main has not called
// ExecWhenReady.
func Start(args []string) (*Command, error) { return StartWith(args, Options{}) }

// StartWith is Start with options.
func StartWith(args []string, o Options) (*Command, error) {
	if !execsWhenReady.Load() {
		return nil, fmt.Errorf("starting %s: %w", args[0], errNoPartner)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	var came syscall.Signal
	for range maxStarts {
		var c *Command
		if c, err = startWaiter(path, args, o); err == nil {
			if came != 0 {
				c.signal(came) // it is for the program, when its turn has come
			}
			return c, nil
		}
		if c == nil {
			break
		}
		// A signal to all processes of a terminal may come before the waiter can hold it.
		if came = syscall.Signal(c.Wait() - 128); came != syscall.SIGINT && came != syscall.SIGTERM && came != syscall.SIGHUP {
			break
		}
	}
	return nil, fmt.Errorf("starting %s: %w", args[0], err)
}

// maxStarts bounds how often a waiter is started that signals end.
const maxStarts = 16

// startWaiter starts the copy of this executable that will be the program at a path. Besides an
// error it returns a waiter that has ended, if there was one.
func startWaiter(path string, args []string, o Options) (*Command, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
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
		Stdout:     cmp.Or(o.Stdout, os.Stdout),
		Stderr:     os.Stderr,
		ExtraFiles: []*os.File{theirs},
	}
	if err := c.cmd.Start(); err != nil {
		gate.Close()
		theirs.Close()
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	theirs.Close() // so that the end of the waiter ends the read
	if _, err := fmt.Fscanln(gate, &c.tid); err != nil {
		c.Kill() // unless it has ended
		return c, err
	}
	return c, nil
}

// An ExecError is a program that was found and could not be run: its format, or
// the interpreter that it names.
type ExecError struct{ Program, Reason string }

// Error returns the program and why.
func (e *ExecError) Error() string { return fmt.Sprintf("cannot run %s: %s", e.Program, e.Reason) }

// PID returns the process number, which the program keeps when it is released.
func (c *Command) PID() int { return c.cmd.Process.Pid }

// TID returns the number of the thread that becomes the program: events of it alone begin with the
// program.
func (c *Command) TID() int { return c.tid }

// Path returns the absolute path of the program, without symbolic links.
func (c *Command) Path() string { return c.path }

// State returns how the program ended and what it used, nil before the end.
func (c *Command) State() *os.ProcessState {
	select {
	case <-c.done:
		return c.cmd.ProcessState
	default:
		return nil
	}
}

// Release lets the program run. The error is that of execve. There is none if a signal has
// ended the program before: Wait returns which.
func (c *Command) Release() error {
	defer c.gate.Close()
	if _, err := c.gate.Write([]byte{1}); err != nil {
		return c.gone(err)
	}
	// The gate closes without a word when the program has taken over.
	complaint, err := io.ReadAll(io.LimitReader(c.gate, 256))
	if len(complaint) > 0 {
		return &ExecError{Program: c.cmd.Args[2], Reason: string(complaint)}
	}
	if err != nil {
		return c.gone(err)
	}
	return nil
}

// gone returns the error of a waiter that does not answer, none if a signal has ended it.
func (c *Command) gone(err error) error {
	if c.Kill(); c.Wait() > 128 {
		return nil
	}
	return fmt.Errorf("starting %s: %w", c.cmd.Args[2], err)
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
// returns it: 128 + N after signal N.
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
