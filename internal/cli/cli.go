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
	"syscall"

	"github.com/spf13/cobra"
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
	newAddrCommand,
	newRecordCommand,
	newReportCommand,
	newViewCommand,
	newConvertCommand,
	newDoctorCommand,
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

// Main runs the command line args (without the program's name) and returns the
// exit status: 0 when all went well, 1 when something failed, 2 when the command
// line is wrong; record returns that of the command it ran.
func Main(args []string) int {
	ctx, stop := interruptible()
	defer stop()
	e := &env{stdout: os.Stdout, stderr: os.Stderr, stdin: os.Stdin}
	return run(ctx, e, args)
}

// interruptible returns a context that ends with the next Ctrl-C or SIGTERM.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "hallmark: %v\nTry 'hallmark --help'.\n", err)
		return 2
	default:
		fmt.Fprintf(e.stderr, "hallmark: %v\n", err)
		return 1
	}
}
