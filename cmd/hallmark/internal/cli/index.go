package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/atomicfile"
	"hallmark/internal/cachedir"
	"hallmark/internal/plaintext"
	"hallmark/symbol"
)

const indexLong = `Index prepares what debug information and symbol tables say of a file's code, so
that lookups answer at once: functions, the calls inlined into them, files,
lines and columns. The debug file of the same identity is used too where it is
found.

An index is kept under the identity and the content of its file in the user's
cache directory ($XDG_CACHE_HOME, ~/.cache), where all verbs find it; or it goes
to the file given with -o. A directory that another user can change is not used:
root in the environment of another user (sudo -E) has the indexes in the cache
directory of root's own home. Where two files have one build
ID, Hallmark keeps two indexes, and a question with only the build ID gets no
answer. By indexing a file you vouch for it: a question with only its build ID
gets its names, too. Index prints
the path and the size of the index and the tables it was made from. The cache is
bounded: indexes that were not used for longest make room. --list prints all.
While a .dwo file or a file of dwz is missing, Hallmark keeps no index; with -o
it writes one without that file.

With --kernel the running kernel is prepared too, from /proc/kallsyms, which
takes CAP_SYSLOG: names of functions, for profiles that are looked at later or
elsewhere. It does not replace an index of the kernel's debug file, which has
more.

With --check the arguments are indexes, which are read as a whole and compared
with their checksums. With --dump they are printed: every piece of code with its
address, its size and its functions, innermost first.`

const indexExample = `  hallmark index /usr/bin/* 2>/dev/null   # prepare what is there
  hallmark index -o prog.index prog
  sudo hallmark index --kernel
  hallmark index --check prog.index
  hallmark index --dump prog.index | less`

type indexOptions struct {
	out         string
	check, dump bool
	list        bool
	kernel      bool
	noColumns   bool
	threads     int
	symbols     symbolsource.Options
}

func newIndexCommand(e *verb.Env) *cobra.Command {
	var opt indexOptions
	cmd := &cobra.Command{
		Use:     "index [flags] FILE...",
		Short:   "Prepare the symbols of files for fast lookups",
		Long:    indexLong,
		Example: indexExample,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.list:
				return verb.NoArguments(cmd, args)
			case opt.kernel:
				return nil
			}
			return verb.Takes("FILE...")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.list:
				return listIndexes(e)
			case opt.kernel && (opt.check || opt.dump):
				return verb.Usagef("index: --kernel makes an index")
			case opt.kernel && opt.out != "" && len(args) > 0:
				return verb.Usagef("index: -o takes one file")
			case opt.check && opt.dump:
				return verb.Usagef("index: --check and --dump do not go together")
			case opt.out != "" && len(args) > 1:
				return verb.Usagef("index: -o takes one file")
			case opt.threads < 0:
				return verb.Usagef("index: --threads must not be negative")
			}
			return runIndex(cmd.Context(), e, opt, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&opt.out, "output", "o", "", "write the index to this `FILE`")
	flags.BoolVar(&opt.check, "check", false, "check indexes instead of making them")
	flags.BoolVar(&opt.dump, "dump", false, "print indexes instead of making them")
	flags.BoolVar(&opt.list, "list", false, "print the indexes that are kept: identity, content, owner (who can have written the file: root, own, others; named is a file of others whose index you asked for), size, when it was used last, file")
	flags.BoolVar(&opt.kernel, "kernel", false, "prepare the running kernel (takes CAP_SYSLOG)")
	flags.BoolVar(&opt.noColumns, "no-columns", false, "leave out columns, for a smaller index")
	flags.IntVar(&opt.threads, "threads", 0, "read `N` units at once (default: one for each processor)")
	opt.symbols.AddFlags(flags)
	opt.symbols.AddPackageFlag(flags)
	return cmd
}

func runIndex(ctx context.Context, e *verb.Env, opt indexOptions, args []string) error {
	verb.CollectLate()
	source, err := opt.symbols.Open(ctx, e)
	if err != nil {
		return err
	}
	defer source.Close()
	do := func(e *verb.Env, opt indexOptions, name string) error { return makeIndex(source, e, opt, name) }
	switch {
	case opt.check:
		do = checkIndex
	case opt.dump:
		do = dumpIndex
	}
	failed := false
	tell := func(err error, names ...string) {
		if err != nil {
			failed = true
			fmt.Fprintf(e.Stderr, "hallmark: %s\n", plaintext.Line(terminal.Message(err, names...)))
		}
	}
	if opt.kernel {
		tell(makeKernelIndex(e, opt))
	}
	for _, arg := range args {
		tell(do(e, opt, arg), arg)
	}
	if failed {
		return verb.ExitStatus(1)
	}
	return nil
}

// makeIndex makes the index of a file, together with its debug file.
func makeIndex(source *symbolsource.Source, e *verb.Env, opt indexOptions, name string) error {
	file, id, err := openToIndex(source, name)
	if file == nil {
		return err
	}
	defer file.Close()
	if err != nil && opt.out == "" {
		return fmt.Errorf("%w: without an identity no index is kept; -o FILE writes one", err)
	}
	o := symbol.IndexOptions{Identity: id.String(), NoColumns: opt.noColumns, Threads: opt.threads}
	if opt.out == "" {
		x, err := source.Prepare(source.Context, id, file, o)
		if x != nil {
			defer x.Close()
		}
		if err != nil {
			return err
		}
		if debuginfo.OriginOf(x).Author == debuginfo.AuthorNamed {
			source.Report(plaintext.Name(name) + ": others can have written it; you vouch for it, and its index answers for its build ID")
		}
		return describeIndex(e, x.Name(), x)
	}
	o.Open = file.Companion
	x, err := file.Index(o)
	if err != nil {
		return err
	}
	return keepIndex(e, opt, x)
}

// openToIndex opens a file with its debug file. Besides a file an error says why its
// identity is unknown.
func openToIndex(s *symbolsource.Source, name string) (*symbol.File, buildid.ID, error) {
	file, err := symbol.OpenFile(name)
	if err != nil {
		return nil, buildid.ID{}, input.DescribeKind(name, err)
	}
	id, err := debuginfo.Identify(file)
	if err != nil && !errors.Is(err, buildid.ErrFormat) {
		file.Close()
		return nil, buildid.ID{}, fmt.Errorf("%s: %w", name, err)
	}
	file, _ = s.Finder.Search(s.Context, debuginfo.Query{ID: id, File: file})
	return file, id, err
}

// listIndexes prints the indexes that are kept.
func listIndexes(e *verb.Env) error {
	if err := cachedir.Refused(); err != nil {
		fmt.Fprintf(e.Stderr, "hallmark: %s; root's own cache is used\n", plaintext.Line(terminal.Message(err)))
	}
	kept, err := new(debuginfo.Indexes).List()
	if err != nil {
		return err
	}
	t, width := &terminal.Grid{Columns: []terminal.Column{{}, {}, {}, {Right: true}, {}, {}}}, terminal.Width(e.Stdout)
	for _, k := range kept {
		o := originOf(k.Path)
		if o.Author == "" {
			continue // of an older release, which nothing reads any more
		}
		t.Add(terminal.ShortID(o.ID.String(), width), terminal.ShortID(cmp.Or(o.Content.String(), "-"), width), string(o.Author), terminal.Quantity(k.Size, "bytes"), k.Used.Format(time.DateOnly), plaintext.Name(o.Path))
	}
	w := bufio.NewWriter(e.Stdout)
	t.Write(w, width)
	return w.Flush()
}

// originOf returns of which file the index at a path was made, the zero one if it does not
// say it.
func originOf(path string) debuginfo.Origin {
	x, err := symbol.OpenIndex(path)
	if err != nil {
		return debuginfo.Origin{}
	}
	defer x.Close()
	return debuginfo.OriginOf(x)
}

// makeKernelIndex makes an index of the running kernel, unless there is one that was
// made from something better.
func makeKernelIndex(e *verb.Env, opt indexOptions) error {
	info, err := buildid.ReadKernel()
	if err != nil {
		return err
	}
	if old, err := new(debuginfo.Indexes).Open(info.ID, buildid.Content{}); err == nil && opt.out == "" {
		defer old.Close()
		if s := old.Sources(); len(s) > 0 && s[0] < symbol.SourceKallsyms {
			return describeIndex(e, old.Name(), old)
		}
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err
	}
	defer f.Close()
	symbols, err := symbol.ReadKallsyms(f)
	if err != nil {
		return err
	}
	x, err := symbols.Index(symbol.IndexOptions{Identity: info.ID.String(), Origin: debuginfo.FromKernel})
	if err != nil {
		return fmt.Errorf("/proc/kallsyms: %w (its addresses take CAP_SYSLOG, which root has)", err)
	}
	return keepIndex(e, opt, x)
}

// keepIndex writes an index to its place, and prints what it is.
func keepIndex(e *verb.Env, opt indexOptions, x *symbol.Index) (err error) {
	path := opt.out
	if path == "" {
		path, err = new(debuginfo.Indexes).Store(x)
	} else {
		err = atomicfile.Write(path, 0o666, func(w io.Writer) error {
			_, err := w.Write(x.Bytes())
			return err
		})
	}
	if err != nil {
		return err
	}
	return describeIndex(e, path, x)
}

// describeIndex prints a line about the index at a path.
func describeIndex(e *verb.Env, path string, x *symbol.Index) error {
	size := terminal.Quantity(int64(len(x.Bytes())), "bytes")
	_, err := fmt.Fprintf(e.Stdout, "%s  %s  %s\n", plaintext.Name(path), size, sourceNames(x))
	return err
}

// sourceNames returns the tables that an index was made from.
func sourceNames(x *symbol.Index) string {
	var names []string
	for _, s := range x.Sources() {
		names = append(names, s.String())
	}
	if len(names) == 0 {
		return "no symbols"
	}
	return strings.Join(names, ", ")
}

func checkIndex(e *verb.Env, _ indexOptions, name string) error {
	x, err := symbol.OpenIndex(name)
	if err != nil {
		return input.DescribeKind(name, err)
	}
	defer x.Close()
	if err := x.Check(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "%s  sound\n", plaintext.Name(name))
	return err
}

// dumpIndex prints an index as text: what it is of, and its pieces.
func dumpIndex(e *verb.Env, _ indexOptions, name string) error {
	x, err := symbol.OpenIndex(name)
	if err != nil {
		return input.DescribeKind(name, err)
	}
	defer x.Close()
	w := bufio.NewWriter(e.Stdout)
	fmt.Fprintf(w, "identity %s\n", plaintext.Line(x.Identity()))
	if o := debuginfo.OriginOf(x); o.Author != "" {
		fmt.Fprintf(w, "content %s\nfile %s (%s)\n", cmp.Or(o.Content.String(), "-"), plaintext.Name(o.Path), o.Author)
	}
	fmt.Fprintf(w, "sources %s\n", sourceNames(x))
	for _, s := range x.Segments() {
		fmt.Fprintf(w, "segment %s at %s, %#x bytes of %#x\n", s.Offset, s.Virt, s.FileSize, s.MemSize)
	}
	for piece := range x.Pieces() {
		fmt.Fprintf(w, "%s+%#x %s\n", piece.Virt, piece.Size, piece.Source)
		for _, f := range piece.Frames {
			dumpFrame(w, &f)
		}
	}
	return w.Flush()
}

func dumpFrame(w io.Writer, f *symbol.Frame) {
	inlined := ""
	if f.Inlined {
		inlined = " inlined"
	}
	fmt.Fprintf(w, "\t%s %s", cmp.Or(plaintext.Quote(f.Linkage), "-"), sourceCell(f.File, f.Line))
	if f.Column != 0 {
		fmt.Fprintf(w, ":%d", f.Column)
	}
	fmt.Fprintf(w, "%s starts at %d", inlined, f.Start)
	if f.Lang != symbol.LangUnknown {
		fmt.Fprintf(w, " in %s", f.Lang)
	}
	if f.Symbol != "" {
		fmt.Fprintf(w, " symbol %s", plaintext.Quote(f.Symbol))
	}
	fmt.Fprintln(w)
}
