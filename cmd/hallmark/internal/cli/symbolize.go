package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/lookupprint"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/reason"
	"hallmark/symbol"
	"hallmark/symbolize"
)

const symbolizeLong = `Symbolize adds functions, source lines and inlined calls to input that names
files and offsets:

  text      logs and crash reports with stacks of sanitizers, LLVM's symbolizer
            markup, Android's tombstones, backtrace_symbols(3),
            systemd-coredump, the kernel's oopses and segfaults, gdb (after its
            "info proc mappings"); the output of perf script; stacks of bpftrace
            and Inspektor Gadget; any text with build IDs and offsets. The rest
            of the text stays as it is, byte for byte.
  folded    folded stacks, one and its count a line
  pprof     a profile

The content decides which it is; --format overrides that. gzip is unpacked.
Without IN, symbolize reads standard input, and passes lines on as they come.
After the first Ctrl-C it reads the rest of standard input.

A build ID in the text says which file ran. It is a claim: if two files have it
and their code differs, symbolize reports both and leaves the frame as it is. A
file that others can have written counts only at the path in the text, or if
--binary or --debug-path names it. A frame without a build ID stays as it is,
unless --binary names its file, or --trust-paths takes the file at its path,
which may be another one than the one that ran. A frame that has a function
keeps it, and gets the inlined calls only if the symbols agree; --force replaces
it.

At the end, standard error has the number of frames that got functions, and why
the others got none. --json prints an object for each frame: docs/json.md has
the fields.`

const symbolizeExample = `  ./prog 2>&1 | hallmark symbolize
  ASAN_OPTIONS=symbolize=0 ./prog 2>&1 | hallmark symbolize
  hallmark symbolize --binary ./prog crash.log  # a log without build IDs
  adb logcat | hallmark symbolize
  coredumpctl info | hallmark symbolize
  perf record -g --buildid-mmap ./prog          # without it: --trust-paths
  perf script --no-inline --show-mmap-events | hallmark symbolize >out.stacks
  hallmark symbolize -o out.pb.gz recorded.pb.gz`

func newSymbolizeCommand(e *verb.Env) *cobra.Command {
	s := symbolizer{env: e}
	cmd := &cobra.Command{
		Use:     "symbolize [flags] [IN]",
		Short:   "Give functions and lines to logs, stack traces and profiles",
		Long:    symbolizeLong,
		Example: symbolizeExample,
		Args:    verb.Takes("[IN]"),
		RunE: func(_ *cobra.Command, args []string) error {
			verb.CollectSeldom()
			return s.run(append(args, "-")[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&s.output, "output", "o", "-", "write to the file `OUT`, '-' for standard output")
	flags.StringVar(&s.format, "format", "", "take IN for this `FORMAT`: text, folded or pprof (default: by its content)")
	verb.CompleteValues(cmd, "format", "text", "folded", "pprof")
	flags.StringArrayVar(&s.filter.Binaries, "binary", nil, "let this `FILE` answer for text that names it, whatever its path; may be repeated")
	flags.BoolVar(&s.filter.TrustPaths, "trust-paths", false, "without a build ID take the file that is at the path now")
	flags.BoolVar(&s.filter.Replace, "force", false, "replace functions that are there already")
	flags.BoolVar(&s.filter.Lines, "lines", false, "add source lines to text of perf script, as its -F +srcline")
	flags.BoolVar(&s.json, "json", false, "print the frames found in text, one JSON object a line")
	flags.BoolVarP(&s.quiet, "quiet", "q", false, "do not print how many frames got functions")
	s.symbols.AddFlags(flags)
	s.symbols.AddServerFlags(flags)
	s.input.AddSizeFlag(flags)
	return cmd
}

type symbolizer struct {
	env         *verb.Env
	input       input.Reader
	symbols     symbolsource.Options
	output      string
	mode        fs.FileMode // of a new output
	format      string
	filter      symbolize.Filter
	json, quiet bool
}

var symbolizeFormats = map[string]symbolize.Format{
	"text": symbolize.Text, "folded": symbolize.Folded, "pprof": symbolize.Pprof,
}

func (s *symbolizer) run(name string) error {
	if err := s.check(); err != nil {
		return err
	}
	s.mode = modeLike(s.env, name)
	ctx, stop := s.context(name)
	defer stop()
	source, err := s.symbols.Open(ctx, s.env)
	if err != nil {
		return err
	}
	defer source.Close()
	in, done, err := s.open(ctx, source, name)
	if err != nil {
		return err
	}
	defer done()
	r, err := uncompressed(in)
	if err == nil {
		err = s.symbolize(source, name, r)
	}
	var output outputError
	switch {
	case errors.As(err, &output):
		return output.error
	case err != nil:
		return fmt.Errorf("%s: %w", perffile.InputName(name), err)
	}
	return nil
}

// context ends with Ctrl-C, save where that ends the program at once as usual: nobody
// else writes what is typed. Ctrl-C is caught to the end of the program: one that comes while
// the last line is written does not make all that was written a failure.
func (s *symbolizer) context(name string) (context.Context, context.CancelFunc) {
	if f, ok := s.env.Stdin.(*os.File); ok && name == "-" && term.IsTerminal(int(f.Fd())) {
		return context.Background(), func() {}
	}
	ctx, _ := verb.Interruptible() // never over
	return ctx, func() {}
}

// check refuses what cannot be carried out before anything is read.
func (s *symbolizer) check() error {
	if _, known := symbolizeFormats[s.format]; s.format != "" && !known {
		return verb.Usagef("--format %s: must be text, folded or pprof", s.format)
	}
	for _, name := range s.filter.Binaries {
		if _, err := buildid.ReadFile(name); err != nil && !isReadable(name) {
			return err
		}
	}
	return nil
}

// isReadable reports whether a file has sound headers: what damage of its notes hides is
// its identity, not its symbols.
func isReadable(name string) bool {
	file, err := symbol.OpenFile(name)
	if err != nil {
		return false
	}
	file.Close()
	return true
}

func (s *symbolizer) symbolize(source *symbolsource.Source, name string, in plainInput) error {
	format, named := symbolizeFormats[s.format]
	if !named {
		first := buffered(in.Reader)
		if bytes.HasPrefix(first, []byte(elf.ELFMAG)) {
			return errors.New("not text with frames, but an ELF file ('hallmark lookup' reads it)")
		}
		format = symbolize.Detect(first)
	}
	switch format {
	case symbolize.PerfData:
		return notText(name, in.compressed)
	case symbolize.Pprof:
		return s.writeProfile(source, in)
	default:
		s.filter.Folded = format == symbolize.Folded
		s.filter.Library = source.Library
		return s.writeText(source, in)
	}
}

// notText says what to do with a recording by perf, which is neither text nor a profile.
func notText(name string, compressed bool) error {
	const reads = "perf.data is not read here: 'hallmark convert' makes a profile with symbols of it"
	if compressed {
		return errors.New(reads + ", also where gzip compressed it")
	}
	return fmt.Errorf("%s; for text: perf script -i %s --show-mmap-events | hallmark symbolize", reads, name)
}

// open opens the input. Reading a file ends with ctx; standard input ends when
// whoever writes it has got the same Ctrl-C and is done.
func (s *symbolizer) open(ctx context.Context, source *symbolsource.Source, name string) (r io.Reader, done func(), err error) {
	if name == "-" {
		return s.env.Stdin, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = notText(name, false)
		if _, none := perfdata.OpenFiles(name); none != nil {
			err = none
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	watched := &watchedFile{ctx: ctx, f: f, bar: source.Bar, size: info.Size()}
	if watched.bar == nil && (s.output != "-" || terminal.Width(s.env.Stdout) == 0) {
		watched.bar = progress.New(s.env.Stderr)
	}
	return watched, func() { watched.bar.Clear(); f.Close() }, nil
}

// errInterrupted says that Ctrl-C came while something was read or looked for.
var errInterrupted = errors.New("interrupted")

// watchedFile is a file whose reading a bar shows and Ctrl-C ends.
type watchedFile struct {
	ctx        context.Context
	f          *os.File
	bar        *progress.Bar
	size, read int64
}

func (w *watchedFile) Read(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, errInterrupted
	}
	n, err := w.f.Read(b)
	if w.read += int64(n); w.size > 0 {
		w.bar.Set(float64(w.read)/float64(w.size), w.f.Name())
	}
	return n, err
}

// uncompressed returns a reader of what may be compressed with gzip.
func uncompressed(r io.Reader) (plainInput, error) {
	in := &input.Counted{R: r}
	plain := bufio.NewReader(in)
	if !bytes.HasPrefix(buffered(plain), perffile.GzipMagic) {
		return plainInput{plain, false, in}, nil
	}
	gz, err := gzip.NewReader(plain)
	if err != nil {
		return plainInput{}, err
	}
	return plainInput{bufio.NewReader(gz), true, in}, nil
}

// plainInput is an input without what gzip did to it.
type plainInput struct {
	*bufio.Reader
	compressed bool
	file       *input.Counted // what it came from
}

// buffered returns what comes with the first read. The next read returns a failure.
func buffered(r *bufio.Reader) []byte {
	r.Peek(1)
	start, _ := r.Peek(r.Buffered())
	return start
}

// write makes the output, which appears under its name when it is whole.
func (s *symbolizer) write(content func(io.Writer) error) error {
	if s.output == "-" {
		return content(s.env.Stdout)
	}
	var failed error
	err := atomicfile.Write(s.output, s.mode, func(w io.Writer) error {
		failed = content(w)
		return failed
	})
	if failed == nil && err != nil {
		return outputError{err}
	}
	return err
}

// outputError is that of an output that cannot be made: no fault of the input.
type outputError struct{ error }

func (s *symbolizer) writeProfile(source *symbolsource.Source, r plainInput) error {
	switch {
	case s.json || s.filter.Lines || s.filter.TrustPaths || s.filter.Binaries != nil:
		return verb.Usagef("--json, --lines, --binary and --trust-paths are for text, this is a profile")
	case s.output == "-" && terminal.Width(s.env.Stdout) > 0:
		return verb.Usagef("a profile is nothing for a terminal: -o OUT")
	}
	o, err := s.input.Options()
	if err != nil {
		return err
	}
	o.InFile = func() int64 { return r.file.N }
	p, err := profile.Read(r, o)
	if err != nil {
		return input.AdviseSize(err)
	}
	symbols := profile.Symbolize
	if s.filter.Replace {
		symbols = profile.Resymbolize
	}
	misses, err := symbols(source.Context, p, &local.Symbols{Library: source.Library})
	if err != nil {
		return errInterrupted
	}
	if err := s.write(func(w io.Writer) error { return profile.Write(w, p) }); err != nil {
		return err
	}
	if !s.quiet {
		c := profile.MeasureCoverage(p, misses)
		writeCoverage(s.env.Stderr, &c)
	}
	return nil
}

// Compressed text may become so much text, and so many times what it was: a bomb would
// take hours. The user then has to uncompress it.
const (
	maxTextBase  = 64 << 20
	maxTextTimes = 24
)

// boundedText is text that gzip compressed.
type boundedText struct {
	plainInput
	n int64
}

func (t *boundedText) Read(p []byte) (int, error) {
	n, err := t.plainInput.Read(p)
	t.n += int64(n)
	if limit := maxTextBase + maxTextTimes*t.file.N; t.n > limit {
		return n, fmt.Errorf("at offset %d, uncompressed: more than %d MiB and %d times what it is compressed; 'zcat FILE | hallmark symbolize' takes it", t.n, maxTextBase>>20, maxTextTimes)
	}
	return n, err
}

func (s *symbolizer) writeText(source *symbolsource.Source, in plainInput) error {
	var r io.Reader = in
	if in.compressed {
		r = &boundedText{plainInput: in}
	}
	var summary *symbolize.Summary
	err := s.write(func(w io.Writer) (err error) {
		if s.json {
			summary, err = s.copyJSON(source, w, r)
		} else {
			summary, err = s.filter.Copy(source.Context, w, r)
		}
		return err
	})
	if summary != nil && !s.quiet {
		writeTextSummary(s.env.Stderr, summary, s.symbols.AsksServer())
	}
	return err
}

// textRecord is one object of output.
type textRecord struct {
	Line    int64                     `json:"input_line"`
	Module  string                    `json:"binary"`
	ID      buildid.ID                `json:"build_id,omitzero"`
	Virtual *addr.Virt                `json:"virtual,omitempty"`
	Offset  *addr.Offset              `json:"offset,omitempty"`
	Trusted bool                      `json:"trusted,omitempty"`
	Frames  []lookupprint.FrameRecord `json:"frames,omitempty"`        // innermost first
	Source  string                    `json:"symbol_source,omitempty"` // of the frames
	Reason  *reason.Reason            `json:"symbol_reason,omitempty"` // why there are none

	// DifferentContent are two files that have the ID and different contents.
	DifferentContent []string `json:"different_content,omitempty"`
}

// copyJSON writes the frames in text instead of the text. Like text they are written
// as they come.
func (s *symbolizer) copyJSON(source *symbolsource.Source, w io.Writer, r io.Reader) (*symbolize.Summary, error) {
	out := &objects{w: w, different: source.DifferentFrom}
	out.enc = verb.NewObjectWriter(&out.pending)
	s.filter.Found = out.add
	return s.filter.Copy(source.Context, out, r)
}

// objects writes the frames found in text whenever the text would be written, which it
// drops.
type objects struct {
	w       io.Writer
	pending bytes.Buffer
	enc     *verb.ObjectWriter
	// different returns two files that have an identity and different contents, or nil.
	different func(buildid.ID) []string
}

func (o *objects) Write(text []byte) (int, error) {
	if _, err := o.pending.WriteTo(o.w); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (o *objects) add(f symbolize.Frame) {
	record := textRecord{Line: f.Line, Module: f.Module, ID: f.ID, Virtual: f.Virt, Offset: f.Offset, Trusted: f.Trusted}
	if len(f.Frames) == 0 {
		record.Reason = &f.Reason
	} else {
		record.Frames, record.Source = lookupprint.FrameRecords(f.Frames), f.Source.String()
	}
	record.DifferentContent = o.different(f.ID)
	_ = o.enc.Write(record) // into memory, and of nothing that could fail
}

// writeTextSummary says what became of the frames in a text.
// asksServer is whether a symbol server was asked.
func writeTextSummary(w io.Writer, s *symbolize.Summary, asksServer bool) {
	if s.Frames == 0 {
		fmt.Fprintln(w, "hallmark: no frames with a file and an offset")
		return
	}
	fmt.Fprintf(w, "hallmark: %s, %s symbolized", plaintext.Plural(s.Frames, "frame"), plaintext.Thousands(s.Symbolized))
	if s.Named > 0 {
		fmt.Fprintf(w, ", %s named before", plaintext.Thousands(s.Named))
	}
	fmt.Fprintln(w)
	if s.Trusted > 0 {
		fmt.Fprintf(w, "hallmark: %s of them unverified: no build ID, files were taken for their names\n", plaintext.Thousands(s.Trusted))
	}
	for _, g := range s.Gaps {
		line := fmt.Sprintf("%s: %s", plaintext.Plural(g.Frames, "frame"), g.Reason)
		if names := shortNames(g.Modules); names != "" {
			line += ": " + names
		}
		advice := cmp.Or(textAdvice[g.Reason], g.Reason.Advice())
		if asksServer && g.Reason == reason.NoFile {
			advice = "send it to the server with 'hallmark push' where it is, or " + advice
		}
		if advice != "" {
			line += " → " + advice
		}
		fmt.Fprintf(w, "hallmark: %s\n", plaintext.Line(line))
	}
}

// textAdvice is what helps with text, other than with a profile.
var textAdvice = map[reason.Reason]string{
	reason.NoIdentity:  "name their files with --binary, or --trust-paths",
	reason.FileChanged: "keep the file that ran and name it with --binary",
	reason.NotBelieved: "name it with --binary if it is the right one",
}

// shortNames names the first few files.
func shortNames(files []string) string {
	var names []string
	for _, file := range files[:min(len(files), terminal.MostNames)] {
		names = append(names, terminal.Name(profile.ShortName(file)))
	}
	names = slices.Compact(names)
	if more := len(files) - terminal.MostNames; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
