package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/lookupprint"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/reason"
	"hallmark/symbol"
)

const lookupLong = `Lookup prints what is at offsets in a file, one a line: the offset, the
function, the source file and line. Calls that were inlined have lines of their
own below, up to the function that is really there.

Name the file by its path or by its identity, or name an index. An identity
needs an index (hallmark index), or a file that lookup finds. Six or more of its
first digits are enough if no other such identity begins with them. With an
index the answer comes at once. Without one, lookup reads the parts of the debug
information that have the answer, and makes an index if many are asked for.

Offsets are hexadecimal, with 0x or without, and are positions in the file; with
--virtual they are virtual addresses, as nm and objdump print them. The offset -
stands for those on standard input, separated by blanks or newlines, which are
answered whenever there are some: another program can ask and wait for the
answer. A return address is behind its call: subtract 1 before you ask.

A reason in brackets stands in place of an answer that is not known. The status
is 1 if no offset has an answer.

A build ID is a claim of the file. If two files have the same one and their code
differs, lookup reports both on standard error ("same build ID, different
content"). With --json the field different_content has them. Then an identity
alone gets no answer, and a path gets that of the file there. For an identity
alone, a file that others can have written counts only if you name it with
--debug-path or had its index made.`

const lookupExample = `  hallmark lookup prog 1136
  hallmark lookup --virtual prog 401136
  hallmark lookup --json 7f5aa8d651230c1b7a2e7c1b4f6a8b9c0d1e2f30 - <offsets`

type lookupOptions struct {
	lookupprint.Style
	symbols symbolsource.Options
}

func newLookupCommand(e *verb.Env) *cobra.Command {
	var opt lookupOptions
	cmd := &cobra.Command{
		Use:     "lookup [flags] FILE|ID OFFSET...",
		Short:   "Print function and line of offsets in a file",
		Long:    lookupLong,
		Example: lookupExample,
		Args:    verb.Takes("FILE|ID", "OFFSET..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLookup(cmd.Context(), e, opt, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.JSON, "json", false, "print one JSON object a line")
	flags.BoolVar(&opt.Virtual, "virtual", false, "offsets are virtual addresses")
	opt.symbols.AddFlags(flags)
	opt.symbols.AddPackageFlag(flags)
	return cmd
}

func runLookup(ctx context.Context, e *verb.Env, opt lookupOptions, name string, args []string) error {
	for _, arg := range args {
		if _, err := lookupprint.ParseOffset([]byte(arg)); arg != "-" && err != nil {
			return verb.Usage(err)
		}
	}
	verb.CollectSeldom()
	source, err := opt.symbols.Open(ctx, e)
	if err != nil {
		return err
	}
	defer source.Close()
	symbols, err := openLookup(source, name)
	if err != nil {
		return err
	}
	defer symbols.Close()
	if file, ok := symbols.(*symbol.File); ok {
		file.EndWith(source.Context)
	}
	if !opt.Virtual {
		if err := checkOffsets(symbols, name, args); err != nil {
			return err
		}
	}
	p := lookupprint.NewPrinter(e.Stdout, symbols, opt.Style, source.DifferentFiles())
	defer p.Close()
	for _, arg := range args {
		if arg == "-" {
			err = p.PrintAll(e.Stdin)
		} else {
			err = p.Print([]byte(arg))
		}
		if err != nil {
			return err
		}
	}
	if _, err := os.Stat(name); err == nil && p.Gaps[reason.DebugFileAlone] > 0 { // of standard input
		return fmt.Errorf("%s: %w", name, errNoOffsets)
	}
	p.Gaps.Write(e.Stderr)
	if file, ok := symbols.(*symbol.File); ok && file.Damage() != nil {
		source.Report("damaged: " + terminal.Message(file.Damage(), name))
	}
	if p.Found == 0 && len(p.Gaps) > 0 {
		return verb.ExitStatus(1)
	}
	return nil
}

// errNoOffsets says that a file has no code that offsets could be in.
var errNoOffsets = errors.New("it has no code and so no file offsets, as debug files have none: ask for virtual addresses with --virtual, or name the program")

// checkOffsets returns an error if a file that was named has no code that the offsets among the
// arguments could be in. Of an identity it is the file that was not found, as the answers say.
func checkOffsets(symbols debuginfo.Symbols, name string, args []string) error {
	if _, err := os.Stat(name); err != nil {
		return nil
	}
	for _, arg := range args {
		offset, err := lookupprint.ParseOffset([]byte(arg))
		if err == nil && symbols.LookupOffset(addr.Offset(offset)).Reason == reason.DebugFileAlone {
			return fmt.Errorf("%s: %w", name, errNoOffsets)
		}
	}
	return nil
}

// wholeID returns the identity that a name is, or begins: of an index, or of a file in a
// directory of build IDs. A name that is none of these is taken for the whole identity.
func wholeID(source *symbolsource.Source, name string) (buildid.ID, error) {
	var known []buildid.ID
	whole, err := buildid.Parse(name)
	if identity.IsHead(name) && len(name) < usualDigits {
		known = source.WithHead(name)
	}
	switch {
	case err == nil && (len(known) == 0 || slices.Contains(known, whole)):
		return whole, nil
	case len(known) == 1:
		return known[0], nil
	case len(known) == 0:
		return buildid.ID{}, fmt.Errorf("%s: no such file, and no index or debug file has an identity that begins so", name)
	}
	var list []string
	for _, id := range known {
		list = append(list, id.String())
	}
	return buildid.ID{}, fmt.Errorf("%s: several identities begin so: %s", name, strings.Join(list[:min(len(list), maxNamed)], ", "))
}

// usualDigits is how many digits build IDs have where nobody asked for fewer: of SHA-1.
const usualDigits = 40

// openLookup returns the symbols of what name stands for: a file, or an identity.
func openLookup(source *symbolsource.Source, name string) (debuginfo.Symbols, error) {
	symbols, err := source.OpenFile(source.Context, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return symbols, input.DescribeKind(name, err)
	}
	if !identity.IsHead(name) {
		if strings.Trim(name, "0123456789abcdefABCDEF") == "" {
			return nil, fmt.Errorf("%s: no such file, and no identity: that takes at least %d digits", name, identity.LeastDigits)
		}
		return nil, err
	}
	id, err := wholeID(source, name)
	if err != nil {
		return nil, err
	}
	known, err := source.Open(source.Context, id)
	if err != nil {
		switch why := reason.Of(err); why {
		case reason.DifferentContent:
			return nil, fmt.Errorf("%s: %s: ask for the file by its path, or name it alone with --debug-path", name, why)
		case reason.NotBelieved:
			return nil, fmt.Errorf("%s: %s: ask for it by its path, or %s", name, why, why.Advice())
		}
		return nil, fmt.Errorf("%s: %w, and no index of it was prepared", name, err)
	}
	return known, nil
}
