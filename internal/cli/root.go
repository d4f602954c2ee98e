package cli

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

const rootLong = `Hallmark gives every stack frame, every mapping and every program on a Linux
machine the identity of the exact file it came from (its build ID) plus the file
offset, and turns that pair into functions and lines.

Exit status: 0 when all went well, 1 when something failed (what, is told on
standard error), 2 when the command line is wrong. 'record' and 'exec' return the
status of the command that they ran; 'ps --help' has its own.`

func newRootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "hallmark",
		Short:         "Which exact file is this code from?",
		Long:          rootLong,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetIn(e.stdin)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	for _, verb := range verbs {
		root.AddCommand(verb(e))
	}
	return root
}

// version is the module's version, with the revision that it was built from
// where the toolchain recorded one.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v
}

// atLeast makes cobra's argument check a usage error.
func atLeast(n int) cobra.PositionalArgs { return usage(cobra.MinimumNArgs(n)) }

func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// completeValues lets shells complete the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // no such flag
	}
}
