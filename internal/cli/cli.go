// Package cli is the hallmark command: one file a verb, over the public
// packages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hallmark/internal/addr2line"
)

// env is what a verb may touch of the world outside its arguments.
type env struct {
	stdout, stderr io.Writer
	stdin          io.Reader
}

// verbs lists every command in the order in which help shows them.
var verbs = []func(*env) *cobra.Command{
	newIDCommand,
	newMapsCommand,
	newPSCommand,
	newCensusCommand,
	newExecCommand,
	newAddrCommand,
	newRecordCommand,
	newReportCommand,
	newViewCommand,
	newConvertCommand,
	newInjectCommand,
	newSymbolizeCommand,
	newIndexCommand,
	newLookupCommand,
	newUnwindCommand,
	newAddr2lineCommand,
	newDoctorCommand,
	newBenchCommand,
	newManCommand,
}

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
	out := &checkedFile{File: os.Stdout}
	e := &env{stdout: out, stderr: os.Stderr, stdin: os.Stdin}
	var status int
	if p, ok := addr2line.ProgramOf(args[0]); ok {
		status = runAddr2line(context.Background(), e, p, args[0], args[1:])
	} else {
		status = run(context.Background(), e, args[1:])
	}
	if out.err != nil && !errors.Is(out.err, syscall.EPIPE) && status == 0 {
		fmt.Fprintf(os.Stderr, "hallmark: writing standard output: %v\n", out.err)
		return 1
	}
	return status
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

// interruptible returns a context that ends with the first Ctrl-C or SIGTERM. The
// second one has its usual effect. It is for verbs that look at it.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func run(ctx context.Context, e *env, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var status exitStatus
	var special statusError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &special):
		fmt.Fprintf(e.stderr, "hallmark: %v\n", err)
		return special.status
	case errors.As(err, &usage), isUsage(err):
		fmt.Fprintf(e.stderr, "hallmark: %v\nTry 'hallmark --help'.\n", err)
		return 2
	default:
		fmt.Fprintf(e.stderr, "hallmark: %v\n", err)
		return 1
	}
}

// isUsage knows the complaints of cobra that have no type of their own.
func isUsage(err error) bool {
	msg := err.Error()
	return strings.HasPrefix(msg, "unknown command") || strings.HasPrefix(msg, "required flag")
}
