package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/addr2line"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
)

const addr2lineLong = `Addr2line prints function, source file and line of virtual addresses, and is a
drop-in for GNU addr2line, llvm-addr2line and llvm-symbolizer: it takes their
command lines, speaks their protocols on standard input and prints what they
print. The name of a link to hallmark decides which of them it is: addr2line,
llvm-symbolizer, llvm-symbolizer-19, x86_64-linux-gnu-addr2line and the like.
Tools that run one of them, such as perf, pprof and sanitizers, need
no more than the link.

Called as a verb it is GNU addr2line; --as=NAME in front of all other flags
makes it another one. The flags behind are those of the program: see 'hallmark
addr2line --as=NAME -h'.

Where an index of the file was prepared (hallmark index), the first answer comes
at once. Every option acts as it does in the original (LLVM 19, GNU binutils),
or is refused by name.

Some answers differ. The discriminators of GNU addr2line are not printed. Code
between functions has no name; in linked files what is behind the last section
has none either, where llvm-symbolizer takes the last label without a size. A
unit without code names nothing. In an object file (.o), an address is looked up
in the first code section that is long enough, and only then among labels of
data. Where debug information lost the name of a function, -f=short takes that
of the symbol table. A directory that is relative, and that of the compilation,
is in a path once. Source that is embedded in debug information is not shown.
Damage is not warned of, and what is sound answers. A debug file without a note
of its own counts only if it is named, also for markup. LLVM's own cache of
debuginfod is not read. Declarations that gcc wrote in a short form, and
variables in .dwo files, are found, which llvm-symbolizer 19 loses. An end of a
line in a name becomes "?", and a terminal gets no control characters.`

const addr2lineExample = `  hallmark addr2line -f -i -C -e prog 0x401136
  nm prog | awk '{print $1}' | hallmark addr2line -e prog
  hallmark addr2line --as=llvm-symbolizer --obj=prog 0x401136

  ln -s "$(command -v hallmark)" ~/tools/addr2line  # perf report, flame graphs
  PATH=~/tools:$PATH perf report
  ln -s "$(command -v hallmark)" ~/tools/llvm-symbolizer  # sanitizers, pprof
  ASAN_SYMBOLIZER_PATH=~/tools/llvm-symbolizer ./prog
  go tool pprof -tools ~/tools prog profile.pb.gz`

func newAddr2lineCommand(e *verb.Env) *cobra.Command {
	return &cobra.Command{
		Use:                "addr2line [--as=NAME] [flags] [ADDRESS...]",
		Short:              "Stand in for addr2line and llvm-symbolizer",
		Long:               addr2lineLong,
		Example:            addr2lineExample,
		DisableFlagParsing: true, // they are another program's
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			p, args, err := chosenProgram(args)
			if err != nil {
				return err
			}
			return exitWith(runAddr2line(cmd.Context(), e, p, "hallmark addr2line", args))
		},
	}
}

// chosenProgram returns the program that --as names, and the arguments behind it.
func chosenProgram(args []string) (addr2line.Program, []string, error) {
	if len(args) == 0 || !strings.HasPrefix(args[0], "--as=") {
		return addr2line.GNU, args, nil
	}
	name := strings.TrimPrefix(args[0], "--as=")
	p, ok := addr2line.ProgramOf(name)
	if !ok {
		return 0, nil, verb.Usagef("addr2line: --as=%s: neither addr2line nor llvm-addr2line nor llvm-symbolizer", name)
	}
	return p, args[1:], nil
}

func exitWith(status int) error {
	if status == 0 {
		return nil
	}
	return verb.ExitStatus(status)
}

func runAddr2line(ctx context.Context, e *verb.Env, p addr2line.Program, name string, args []string) int {
	verb.CollectSeldom()
	var symbols symbolsource.Options
	source, err := symbols.Open(ctx, e)
	if err != nil {
		fmt.Fprintf(e.Stderr, "%s: %s\n", name, plaintext.Line(terminal.Message(err, args...)))
		return 1
	}
	defer source.Close()
	source.Finder.Lacks = nil // the originals do not say so
	return addr2line.Run(source.Context, p, name, args, addr2line.World{
		Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr,
		Getenv: os.Getenv, Version: version(), Library: source.Library,
		Terminal: terminal.Width(e.Stdout) > 0,
	})
}
