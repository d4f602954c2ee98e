package cli

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/atomicfile"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/firefox"
	"hallmark/profile/folded"
	"hallmark/profile/local"
	"hallmark/profile/otlp"
	"hallmark/profile/speedscope"
	"hallmark/profile/svg"
	"hallmark/profile/toperf"
	"hallmark/profile/view"
	"hallmark/web"
)

const convertLong = `Write a profile in another format:

  folded      one stack and its count a line, for flamegraph.pl and the like
  speedscope  JSON for https://www.speedscope.app
  firefox     JSON for https://profiler.firefox.com, with the build IDs of files
  html        the pages of 'hallmark view' as one file, which needs no server
  svg         a flame graph as an image, the outermost functions at the top
  pprof       the profile with symbols added, for 'go tool pprof' and the like
  perf        perf.data for 'perf report', which finds symbols by build ID
  otlp        an OTLP message for OpenTelemetry's collectors and backends

The end of the output's name chooses the format: .folded, .speedscope.json,
.firefox.json (or .firefox.json.gz), .html, .svg, .pb.gz, .perf.data (or
perf.data), .otlp. --format overrides it. The output appears under its name when
it is complete, and no more people can read it than can read FILE. Without FILE,
convert reads hallmark.pb.gz, which 'hallmark record' writes.

Symbols: frames without symbols get them as in 'hallmark report', unless
--no-symbols. Frames that stay without are shown by the start of their function
('libfoo.so+0x1f3a40'), or together as 'libfoo.so [unknown]'. In folded, and
with --no-symbols, each address is a frame of its own, '[libfoo.so+0x1f3a52]',
which 'hallmark symbolize' names later. pprof, otlp and perf keep addresses.
perf gets only GNU build IDs; --every-identity adds those of other kinds.

Recordings by perf: FILE may be perf.data, the directory of 'perf record
--threads', and either may be compressed with gzip. Record with --buildid-mmap:
perf then records the build ID of every mapping. Without it, perf records only
those of files with samples, and none with -z; convert adds those that 'hallmark
inject' can prove, and --trust-paths takes the files at the paths without proof.
Of a damaged recording convert writes what can be read, and returns 1.

Times: speedscope, firefox and perf are in the order of time after 'hallmark
record --timeline', and for recordings by perf; html shows when, and otlp has
the times. --timeline keeps them in pprof too.

Other input: FILE may be folded stacks, the text of 'perf script', or an OTLP
message (protocol 1.10 or later), also in JSON.

Events: convert takes the first event with samples; --event chooses another.
--event all keeps every event as a value, without times. --sample-type chooses
the value to show; by default folded counts samples, and the others take the
profile's own choice.`

func newConvertCommand(e *verb.Env) *cobra.Command {
	c := converter{env: e}
	cmd := &cobra.Command{
		Use:   "convert [flags] -o OUT [FILE]",
		Short: "Write a profile in another format, or with symbols",
		Long:  convertLong,
		Example: `  hallmark convert -o out.folded out.pb.gz
  hallmark convert -o out.speedscope.json out.pb.gz
  hallmark convert -o out.svg out.pb.gz
  hallmark convert --format folded -o - out.pb.gz | flamegraph.pl > out.svg
  hallmark convert -o out.perf.data out.pb.gz && perf report -i out.perf.data
  perf record -g --buildid-mmap prog && hallmark convert -o out.pb.gz perf.data`,
		Args: verb.Takes("[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			if c.output == "" {
				return verb.Usagef("convert: -o OUT is missing, '-' is standard output")
			}
			name, err := input.Argument(args)
			if err != nil {
				return err
			}
			return c.run(name)
		},
	}
	c.input.AddFlags(cmd.Flags())
	everyIdentityFlag(cmd.Flags(), &c.every)
	c.input.DebugPaths = &c.symbols.Extra
	c.symbols.AddFlags(cmd.Flags())
	c.symbols.AddServerFlags(cmd.Flags())
	cmd.Flags().StringVarP(&c.output, "output", "o", "", "write to the file `OUT`, '-' for standard output")
	cmd.Flags().StringVar(&c.format, "format", "", "write this `FORMAT`: folded, speedscope, firefox, html, svg, pprof, perf or otlp (default: by the name of the output)")
	verb.CompleteValues(cmd, "format", formatNames()...)
	cmd.Flags().BoolVar(&c.noSymbols, "no-symbols", false, "leave frames without symbols as they are")
	cmd.Flags().BoolVar(&c.input.Times, "timeline", false, "keep the time of every sample of a perf.data file, whatever the format")
	return cmd
}

type converter struct {
	env       *verb.Env
	input     input.Reader
	symbols   symbolsource.Options
	output    string
	format    string
	noSymbols bool
	every     bool // files without a GNU build ID have their identity in perf.data
}

// format is a kind of file that a profile can be written as.
type format struct {
	name       string
	extensions []string
	write      func(c *converter, w io.Writer, p *pprof.Profile) error
	// symbols is whether the format has names of functions.
	symbols bool
	// times is whether it says when samples were taken.
	times bool
	// drops is whether frames are left out here that the profile says are not worth to be shown. Others keep what
	// says so, or leave them out when they have names.
	drops bool
	// claims is whether it says whose claim an identity is.
	claims bool
}

var formats = []format{
	{name: "folded", extensions: []string{".folded"}, write: (*converter).writeFolded, symbols: true, drops: true},
	{name: "speedscope", extensions: []string{".speedscope.json"}, write: (*converter).writeSpeedscope, symbols: true, drops: true, times: true},
	{name: "firefox", extensions: []string{".firefox.json", ".firefox.json.gz"}, write: (*converter).writeFirefox, symbols: true, drops: true, times: true},
	{name: "html", extensions: []string{".html"}, write: (*converter).writeHTML, times: true, claims: true},
	{name: "svg", extensions: []string{".svg"}, write: (*converter).writeSVG},
	{name: "pprof", extensions: []string{".pb.gz", ".pprof"}, write: (*converter).writePprof, symbols: true, claims: true},
	{name: "perf", extensions: []string{"perf.data"}, write: (*converter).writePerf, times: true},
	{name: "otlp", extensions: []string{".otlp"}, write: (*converter).writeOTLP, symbols: true, times: true, claims: true},
}

// encode writes a profile. Where the format cannot say that an identity is a claim of others, their code has no names.
func (f *format) encode(c *converter, w io.Writer, p *pprof.Profile) error {
	if slices.ContainsFunc(p.Mapping, profile.IsClaimed) && !f.claims {
		p = p.Copy() // what it loses is not for others
		if bare := profile.DropClaimedNames(p); bare > 0 || !f.symbols {
			fmt.Fprintf(c.env.Stderr, "hallmark: code in files whose identity only another user claims has no names: %s cannot show the claim\n", f.name)
		}
	}
	return f.write(c, w, p)
}

// formatOf returns the format with this name, or without a name the one that the
// output's name ends in.
func formatOf(name, output string) (format, error) {
	for _, f := range formats {
		byOutput := slices.ContainsFunc(f.extensions, func(e string) bool { return strings.HasSuffix(output, e) })
		if f.name == name || name == "" && byOutput {
			return f, nil
		}
	}
	if name != "" {
		return format{}, verb.Usagef("--format %s: must be folded, speedscope, firefox, html, svg, pprof, perf or otlp", name)
	}
	if output == "-" {
		return format{}, verb.Usagef("standard output has no name that says the format: use --format")
	}
	return format{}, verb.Usagef("%s: the name ends in no known format, use .folded, .speedscope.json, .firefox.json, .html, .svg, .pb.gz, .perf.data, .otlp or --format", output)
}

// foreign are ends of names of files in formats that are not written.
var foreign = []string{".json", ".json.gz", ".txt", ".csv", ".data"}

// recordedFormat is formatOf for a recording, which is pprof's where no name says otherwise.
func recordedFormat(name, output string) (format, error) {
	f, err := formatOf(name, output)
	if err == nil || name != "" {
		return f, err
	}
	if slices.ContainsFunc(foreign, func(e string) bool { return strings.HasSuffix(output, e) }) {
		return format{}, err
	}
	return formatOf("pprof", "")
}

// defaultName returns the name of a recording in the format that nobody has named.
func (f *format) defaultName() string {
	return "hallmark." + strings.TrimPrefix(f.extensions[0], ".")
}

// formatNames returns the names of the formats.
func formatNames() []string {
	var names []string
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// check refuses a conversion that would lose what its input has: the output has less than the
// recording that it would replace, and folded stacks have no room for several events.
func (c *converter) check(f format, name string) error {
	if c.every && f.name != "perf" {
		return verb.Usagef("--every-identity is for perf.data; other formats have every identity")
	}
	if f.name == "folded" && c.input.Event == input.EveryEvent {
		return verb.Usagef("folded has one value a stack: choose one event")
	}
	in, err := os.Stat(name)
	if err != nil {
		return nil // it is said where it is opened
	}
	if from, err := formatOf("", name); err == nil && from.name == "pprof" && f.name == "pprof" {
		return nil // it gets symbols
	}
	if out, err := os.Stat(c.output); err == nil && os.SameFile(in, out) {
		return verb.Usagef("the output is the input: %s", name)
	}
	return nil
}

func (c *converter) run(name string) error {
	verb.CollectSeldom()
	if err := c.input.Believe(); err != nil {
		return err
	}
	f, err := formatOf(c.format, c.output)
	if err != nil {
		return err
	}
	if err := c.check(f, name); err != nil {
		return err
	}
	c.input.Times = c.input.Times || f.times
	c.input.Nameless = c.noSymbols
	c.input.ReportLacks = f.name != "pprof"
	p, err := c.input.Read(c.env, name)
	if err != nil {
		return err
	}
	if !c.noSymbols && f.symbols {
		symbolize := c.symbols.Show
		switch f.name {
		case "pprof", "otlp": // to be kept
			symbolize = c.symbols.Symbolize
		case "folded": // text that is named later
			symbolize = c.symbols.Apart
		}
		if _, err := symbolize(c.env, p); err != nil {
			return err
		}
		if err := c.input.CheckCalls(name, p); err != nil {
			return err
		}
	}
	if f.drops {
		profile.DropUninteresting(p)
	}
	write := func(w io.Writer) error { return f.encode(c, c.input.Limited(w), p) }
	switch {
	case c.output == "-":
		// Standard output may be able to seek, and not be at its start.
		err = write(struct{ io.Writer }{c.env.Stdout})
	case f.name == "perf": // the head of the file is written last
		err = atomicfile.WriteSeeking(c.output, modeLike(c.env, name), func(w io.WriteSeeker) error { return write(w) })
	default:
		err = atomicfile.Write(c.output, modeLike(c.env, name), write)
	}
	if err != nil {
		return input.AdviseSize(fmt.Errorf("converting %s: %w", name, err))
	}
	return c.input.Status()
}

// modeLike returns the mode of a new file that is made of an input: no more people may read it. Nobody knows
// who may read what comes through a pipe.
func modeLike(e *verb.Env, name string) fs.FileMode {
	const all, own = 0o666, 0o600
	info, err := os.Stat(name)
	if f, ok := e.Stdin.(*os.File); ok && name == "-" {
		info, err = f.Stat()
	}
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return own
	}
	return info.Mode().Perm() & all
}

func (c *converter) writeFolded(w io.Writer, p *pprof.Profile) error {
	return folded.Write(w, p, folded.Options{SampleType: c.input.SampleType})
}

func (c *converter) writeSpeedscope(w io.Writer, p *pprof.Profile) error {
	name := strings.TrimSuffix(filepath.Base(c.output), ".speedscope.json")
	return speedscope.Write(w, p, speedscope.Options{Name: name, SampleType: c.input.SampleType})
}

// writeFirefox compresses what has a name that says so, which the profiler reads as well.
func (c *converter) writeFirefox(w io.Writer, p *pprof.Profile) error {
	plain := strings.TrimSuffix(filepath.Base(c.output), ".gz")
	o := firefox.Options{Name: strings.TrimSuffix(plain, ".firefox.json"), SampleType: c.input.SampleType, MaxStacks: c.input.MaxStacks()}
	if !strings.HasSuffix(c.output, ".gz") {
		return firefox.Write(w, p, o)
	}
	z := gzip.NewWriter(w)
	if err := firefox.Write(z, p, o); err != nil {
		return err
	}
	return z.Close()
}

func (c *converter) writePprof(w io.Writer, p *pprof.Profile) error {
	if c.input.SampleType != "" {
		return verb.Usagef("--sample-type makes no sense for pprof, which keeps all of them")
	}
	return profile.Write(w, p)
}

func (c *converter) writePerf(w io.Writer, p *pprof.Profile) error {
	return toperf.Write(w, p, toperf.Options{SampleType: c.input.SampleType, EveryIdentity: c.every})
}

// writeOTLP writes a message, which has a profile for each type of values.
func (c *converter) writeOTLP(w io.Writer, p *pprof.Profile) error {
	if c.input.SampleType != "" {
		return verb.Usagef("--sample-type makes no sense for otlp, which keeps all of them")
	}
	m, err := otlp.FromProfile(p)
	if err != nil {
		return err
	}
	b, err := m.Append(nil)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// writeHTML writes the pages of 'hallmark view' as one file. It names code without symbols as the
// pages do: each place of it by its file offset.
func (c *converter) writeHTML(w io.Writer, p *pprof.Profile) error {
	all, err := compact.FromPprof(p)
	if err != nil {
		return err
	}
	o := view.Options{
		Title:      strings.TrimSuffix(filepath.Base(c.output), ".html"),
		SampleType: c.input.SampleType,
		FitAdvice:  advice.Fitter(&c.input, all),
	}
	ctx := context.Background()
	if !c.noSymbols {
		s, err := c.symbols.Open(ctx, c.env)
		if err != nil {
			return err
		}
		defer s.Close()
		ctx = s.Context
		o.Symbols = &local.Symbols{Library: s.Library}
	}
	shown, err := view.Prepare(ctx, all, o)
	if ctx.Err() != nil {
		return symbolsource.ErrAsking
	}
	if err != nil {
		return err
	}
	return web.WriteFile(w, shown)
}

// writeSVG draws the profile. Code without symbols is named as on the pages of 'hallmark view':
// each place of it by its file offset, or by where its function starts.
func (c *converter) writeSVG(w io.Writer, p *pprof.Profile) error {
	o := svg.Options{
		Title:      strings.TrimSuffix(filepath.Base(c.output), ".svg"),
		SampleType: c.input.SampleType,
		Quantity:   terminal.Quantity,
	}
	if c.output == "-" {
		o.Title = "flame graph"
	}
	if !c.noSymbols {
		s, err := c.symbols.Open(context.Background(), c.env)
		if err != nil {
			return err
		}
		defer s.Close()
		symbols := &local.Symbols{Library: s.Library}
		p = p.Copy() // what is named here is not for others
		if o.Misses, err = profile.Symbolize(s.Context, p, symbols); err != nil {
			return symbolsource.ErrAsking
		}
		profile.DropClaimedNames(p)
		profile.NameStarts(s.Context, p, symbols)
	}
	return svg.Write(w, p, o)
}
