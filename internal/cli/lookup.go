package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"hallmark/buildid"
	"hallmark/debuginfo"
)

const lookupLong = `Lookup prints what is at offsets in a file, one a line: the offset, the function,
the source file and line. Calls that were inlined have lines of their own below, up
to the function that is really there.

The file is named by its path or by its identity; of an identity the index must have
been prepared (hallmark index), or its file be found. An index itself can be given
too. With an index the answer comes at once; without one the parts of the debug
information are read that have the answer, and all of it becomes an index if many are
asked for.

Offsets are hexadecimal, with 0x or without, and are positions in the file; with
--virtual they are virtual addresses, as nm and objdump print them. The offset -
stands for those on standard input, separated by blanks or newlines, which are
answered whenever there are some: another program can ask and wait for the answer.
They are looked up as they are: of a return address, which is behind the call, ask
for the byte before.

What is not known has the reason in its place, in brackets.`

const lookupExample = `  hallmark lookup /bin/bash 31d20
  hallmark lookup --virtual prog 401136
  hallmark lookup --json 7f5aa8d651230c1b7a2e7c1b4f6a8b9c0d1e2f30 - <offsets`

type lookupOptions struct {
	json, virtual bool
	symbols       symbolOptions
}

func newLookupCommand(e *env) *cobra.Command {
	var opt lookupOptions
	cmd := &cobra.Command{
		Use:     "lookup [flags] FILE|ID OFFSET...",
		Short:   "Print function and line of offsets in a file",
		Long:    lookupLong,
		Example: lookupExample,
		Args:    atLeast(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLookup(cmd.Context(), e, opt, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line")
	flags.BoolVar(&opt.virtual, "virtual", false, "offsets are virtual addresses")
	opt.symbols.addFlags(flags)
	opt.symbols.addPackageFlag(flags)
	return cmd
}

func runLookup(ctx context.Context, e *env, opt lookupOptions, name string, args []string) error {
	for _, arg := range args {
		if _, err := parseOffset([]byte(arg)); arg != "-" && err != nil {
			return usageError{err}
		}
	}
	source, err := opt.symbols.open(ctx, e)
	if err != nil {
		return err
	}
	defer source.close()
	symbols, err := openLookup(source, name)
	if err != nil {
		return err
	}
	defer symbols.Close()
	p := newLookupPrinter(e.stdout, symbols, opt)
	defer p.close()
	for _, arg := range args {
		if arg == "-" {
			err = p.printAll(e.stdin)
		} else {
			err = p.print([]byte(arg))
		}
		if err != nil {
			return err
		}
	}
	p.gaps.write(e.stderr)
	return nil
}

// openLookup returns the symbols of what name stands for: a file, or an identity.
func openLookup(source *symbolSource, name string) (debuginfo.Symbols, error) {
	symbols, err := source.OpenFile(source.ctx, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return symbols, err
	}
	id, notID := buildid.Parse(name)
	if notID != nil {
		return nil, err
	}
	symbols, why := source.Open(source.ctx, id)
	if symbols == nil {
		return nil, fmt.Errorf("%s: %s, and no index of it was prepared", name, why)
	}
	return symbols, nil
}
