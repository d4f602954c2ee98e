// Package cli is the hallmark command: one file a verb, over the public
// packages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/addr2line"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
)

// verbs lists every command in the order in which help shows them.
var verbs = []entry{
	{newIDCommand, machine},
	{newMapsCommand, machine},
	{newPSCommand, machine},
	{newExecCommand, machine},
	{newAddrCommand, machine},
	{newRecordCommand, profiles},
	{newTopCommand, profiles},
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

// An entry is a command, in a group of the help.
type entry struct {
	command func(*verb.Env) *cobra.Command
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

// Main runs a command line, whose first word is what the program was called, and
// returns the exit status: 0 when all went well, 1 when something failed, 2 when the
// command line is wrong; record returns that of the command it ran. Called by the name
// of another program that it stands in for, it is that one.
func Main(args []string) int {
	// A file that may grow no more (ulimit -f) is an error of its writer, and ends nothing. Commands
	// that are started from here have the signal as it was.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	verb.ListenToQuit()
	e := verb.NewEnv()
	var status int
	if p, ok := addr2line.ProgramOf(args[0]); ok {
		status = runAddr2line(context.Background(), e, p, args[0], args[1:])
	} else {
		status = run(context.Background(), e, args[1:])
	}
	if err := e.LostOutput(); err != nil {
		fmt.Fprintf(e.Stderr, "hallmark: writing standard output: %v\n", verb.ReasonOf(err))
		return max(status, 1)
	}
	return status
}

func run(ctx context.Context, e *verb.Env, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		root.SetOut(plainDescriptions{e.Stdout})
	}
	cmd, err := root.ExecuteContextC(ctx)
	var status verb.ExitStatus
	var special verb.StatusError
	var usage verb.UsageError
	if err == nil {
		return 0
	}
	text := plaintext.Text(terminal.Message(err, args...))
	switch {
	case e.IsOutputLost(err):
		return 1
	case errors.As(err, &status):
		return int(status)
	}
	verb.WriteFailure(e, cmd, err)
	switch {
	case errors.As(err, &special):
		fmt.Fprintf(e.Stderr, "hallmark: %s\n", text)
		return special.Status
	case errors.As(err, &usage), isUsage(err):
		fmt.Fprintf(e.Stderr, "hallmark: %s\nTry '%s --help'.\n", text, cmd.CommandPath())
		return 2
	default:
		fmt.Fprintf(e.Stderr, "hallmark: %s\n", text)
		return 1
	}
}

// isUsage knows the complaints of cobra that have no type of their own.
func isUsage(err error) bool {
	msg := err.Error()
	return strings.HasPrefix(msg, "unknown command") || strings.HasPrefix(msg, "required flag")
}
