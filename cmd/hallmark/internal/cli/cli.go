// Package cli is the hallmark command: one file a verb, over the public
// packages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/addr2line"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/cachedir"
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
	cachedir.OnDamage(func(path string, damage error) {
		fmt.Fprintf(e.Stderr, "hallmark: %s\n", symbolsource.DamageText(path, damage))
	})
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

const rootLong = `Hallmark gives each stack frame, mapping and program on a Linux machine the
identity of the exact file it came from (its build ID). A frame and a mapping
also get the offset in that file. From both Hallmark finds functions and lines.

Start with 'hallmark doctor', which says what works on this machine. Then run
'hallmark record -- COMMAND' and 'hallmark report'. To record the whole machine
(record -a) takes CAP_PERFMON, which root has.

Exit status: 0 when all went well, 1 when something failed (standard error
says what), 2 when the command line is wrong. 'record' and 'exec' return the
status of the command that they ran; 'ps --help' has its own.`

func newRootCommand(e *verb.Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "hallmark",
		Short:         "Which exact file is this code from?",
		Long:          rootLong,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetIn(e.Stdin)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", terminal.UnknownWidth)))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return verb.Usage(verb.FlagError(cmd, err)) })
	for _, group := range []string{machine, profiles, symbols, servers, measures} {
		root.AddGroup(&cobra.Group{ID: group, Title: group})
	}
	for _, v := range verbs {
		cmd := v.command(e)
		cmd.GroupID = v.group
		root.AddCommand(cmd)
	}
	refuseUnknownTopics(root)
	addCompletions(root)
	root.PersistentPreRunE = checkFileNames
	return root
}

// checkFileNames refuses flags that name files with no name in them, as of a variable that is not
// set: some verbs would take that for a directory, and others for no flag.
func checkFileNames(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		if name != "DIR" && !slices.Contains(fileNames, name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if slices.Contains(values, "") {
			err = verb.Usagef("--%s has no name in it", f.Name)
		}
	})
	return err
}

// refuseUnknownTopics has help and completion refuse words that they do not know, for which
// cobra prints help, with status 0.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return verb.Usagef("no help on %q: there is no such command", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			group(cmd)
			completeBareBash(cmd)
		}
	}
}

// group makes a command refuse words that are none of its subcommands. Without a word it
// prints its help.
func group(cmd *cobra.Command) {
	cmd.Args = subcommandsAlone
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// subcommandsAlone refuses words that are none of the subcommands of a command.
func subcommandsAlone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return verb.Usagef("unknown command %q: 'hallmark %s' has %s", args[0], cmd.Name(), strings.Join(subcommands(cmd), ", "))
}

// subcommands returns the names of the commands below a command.
func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// version is the module's version, with the commit that it was built from where the toolchain
// recorded one, and whether other changes are in it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" { // built without the history: with go run, or of a copy
		v = "of no release"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v += ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			v += " with changes"
		}
	}
	return v + fmt.Sprintf(" (%s, %s/%s)", info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
