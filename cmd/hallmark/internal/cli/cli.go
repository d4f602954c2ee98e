// Package cli is the hallmark command: one file a verb, over the public
// packages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/addr2line"
	"hallmark/internal/plaintext"
)

// env is what a verb may touch of the world outside its arguments.
type env struct {
	stdout, stderr io.Writer
	stdin          io.Reader
}

// verbs lists every command in the order in which help shows them.
var verbs = []verb{
	{newIDCommand, machine},
	{newMapsCommand, machine},
	{newPSCommand, machine},
	{newExecCommand, machine},
	{newAddrCommand, machine},
	{newRecordCommand, profiles},
	{newReportCommand, profiles},
	{newViewCommand, profiles},
	{newConvertCommand, profiles},
	{newInjectCommand, profiles},
	{newSymbolizeCommand, symbols},
	{newIndexCommand, symbols},
	{newLookupCommand, symbols},
	{newUnwindCommand, symbols},
	{newAddr2lineCommand, symbols},
	{newServeCommand, servers},
	{newPushCommand, servers},
	{newDoctorCommand, measures},
	{newBenchCommand, measures},
	{newCensusCommand, measures},
	{newManCommand, ""},
	{newVersionCommand, ""},
}

// A verb is a command, in a group of the help.
type verb struct {
	command func(*env) *cobra.Command
	group   string
}

// Groups of verbs, in the order of the help.
const (
	machine  = "Look at a machine:"
	profiles = "Record, and look at profiles:"
	symbols  = "Functions and lines:"
	servers  = "Serve files and symbols:"
	measures = "Check and measure this machine:"
)

// exitStatus is an error that only sets the exit status: what went wrong has
// been told already.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// statusError is an error to be told that has an exit status of its own.
type statusError struct {
	status int
	error
}

// usageError marks a command line that cannot be carried out as it is written.
type usageError struct{ error }

// Main runs a command line, whose first word is what the program was called, and
// returns the exit status: 0 when all went well, 1 when something failed, 2 when the
// command line is wrong; record returns that of the command it ran. Called by the name
// of another program that it stands in for, it is that one.
func Main(args []string) int {
	// A file that may grow no more (ulimit -f) is an error of its writer, and ends nothing. Commands
	// that are started from here have the signal as it was.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	theSignals.quit.Do(theSignals.startQuit)
	out := &checkedFile{File: os.Stdout}
	e := &env{stdout: out, stderr: unbreakable(os.Stderr), stdin: os.Stdin}
	var status int
	if p, ok := addr2line.ProgramOf(args[0]); ok {
		status = runAddr2line(context.Background(), e, p, args[0], args[1:])
	} else {
		status = run(context.Background(), e, args[1:])
	}
	if out.failed() {
		fmt.Fprintf(e.stderr, "hallmark: writing standard output: %v\n", reasonOf(out.err))
		return max(status, 1)
	}
	return status
}

// reasonOf returns why a file could not be written, without the name that it has here.
func reasonOf(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// checkedFile remembers that a write failed, so that output that got lost is not
// taken for success.
type checkedFile struct {
	*os.File
	err error
}

func (f *checkedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

// failed reports whether output got lost, and not because nobody wanted more of it.
func (f *checkedFile) failed() bool { return f.err != nil && !errors.Is(f.err, syscall.EPIPE) }

// isOutputLost reports whether an error is that of a write to standard output, which Main
// reports: a verb may take it for one of its input.
func (e *env) isOutputLost(err error) bool {
	out, ok := e.stdout.(*checkedFile)
	return ok && out.failed() && errors.Is(err, out.err)
}

func run(ctx context.Context, e *env, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		root.SetOut(plainDescriptions{e.stdout})
	}
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	var special statusError
	var usage usageError
	if err == nil {
		return 0
	}
	text := plaintext.Text(message(err, args...))
	switch {
	case e.isOutputLost(err):
		return 1
	case errors.As(err, &status):
		return int(status)
	}
	writeFailure(e, cmd, err)
	switch {
	case errors.As(err, &special):
		fmt.Fprintf(e.stderr, "hallmark: %s\n", text)
		return special.status
	case errors.As(err, &usage), isUsage(err):
		fmt.Fprintf(e.stderr, "hallmark: %s\nTry '%s --help'.\n", text, cmd.CommandPath())
		return 2
	default:
		fmt.Fprintf(e.stderr, "hallmark: %s\n", text)
		return 1
	}
}

// isUsage knows the complaints of cobra that have no type of their own.
func isUsage(err error) bool {
	msg := err.Error()
	return strings.HasPrefix(msg, "unknown command") || strings.HasPrefix(msg, "required flag")
}
