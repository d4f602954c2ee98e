package cli

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/local"
	"hallmark/profile/view"
	"hallmark/web"
)

const viewLong = `Show a profile in the browser: flame graph, functions, binaries by identity,
processes and other labels, callers and callees, source lines, instructions, and
what is known of all that and what is not. With the time of each sample (record
--timeline, and recordings by perf) a range of time can be chosen. With --diff
two profiles are compared. Press ? there for the keys.

The pages are served on the loopback interface, until Ctrl-C. Everybody who has
the printed URL can see them, and nobody else: it contains a key, for which the
browser gets a cookie. To look from elsewhere, forward the port (ssh -L) and
open the same URL there. A script gets the cookie by 'curl -L -c jar URL', and
then a page by 'curl -b jar PAGE'. As
root no browser is opened: open the URL as the user whose browser it is.

The text of source lines is shown from files in the directory of --source, at
the path that the debug information names or at an end of it. No other file is
opened, because a profiled program can name any.

Instructions are shown of files on this machine that have the identity of the
profile, and the content where that is known.

Frames without symbols get them as with 'hallmark report'. FILE is
hallmark.pb.gz where none is named, and may be a recording by perf, as there;
--event all shows all of its events, which the pages choose from.

'hallmark convert -o OUT.html' writes the pages as one file instead, which needs
no server.`

func newViewCommand(e *verb.Env) *cobra.Command {
	v := viewer{env: e}
	cmd := &cobra.Command{
		Use:   "view [flags] [FILE]",
		Short: "Show a profile as a flame graph and tables in the browser",
		Long:  viewLong,
		Example: `  hallmark view out.pb.gz
  hallmark view --diff before.pb.gz after.pb.gz
  hallmark view --source ~/src/app out.pb.gz
  hallmark view --http 127.0.0.1:8080 --no-browser out.pb.gz`,
		Args: verb.Takes("[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			name, err := input.Argument(args)
			if err != nil {
				return err
			}
			return v.run(name)
		},
	}
	v.input.AddFlags(cmd.Flags())
	v.input.DebugPaths = &v.symbols.Extra
	v.symbols.AddFlags(cmd.Flags())
	v.symbols.AddServerFlags(cmd.Flags())
	cmd.Flags().StringVar(&v.base, "diff", "", "compare with the profile `BASE`")
	cmd.Flags().StringVar(&v.address, "http", "127.0.0.1:0", "serve at `HOST:PORT`, port 0 takes a free one")
	cmd.Flags().StringVar(&v.sources, "source", "", "show the text of source lines from files in `DIR`")
	cmd.Flags().BoolVar(&v.noBrowser, "no-browser", false, "do not open a browser")
	return cmd
}

type viewer struct {
	env       *verb.Env
	input     input.Reader
	symbols   symbolsource.Options
	base      string
	sources   string
	address   string
	noBrowser bool
}

func (v *viewer) run(name string) error {
	verb.CollectSeldom()
	if err := v.input.Believe(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(v.address); err != nil {
		return verb.Usagef("--http %w", err)
	}
	ctx, over := verb.Interruptible()
	defer over()
	s := view.Server{Address: v.address, Sources: v.sources, Browser: !v.noBrowser}
	return serve(ctx, v.env, s, v.symbols, func() (*compact.Profile, view.Options, error) { return v.read(name) })
}

// manyLocations is from how many on the names of a profile make a heap of many pointers, which takes long to look
// through.
const manyLocations = 100_000

// read reads the profile, and what it is compared with.
func (v *viewer) read(name string) (*compact.Profile, view.Options, error) {
	v.input.ReportLacks, v.input.Times = true, true
	o := view.Options{Title: filepath.Base(perffile.InputName(name)), SampleType: v.input.SampleType}
	v.input.Differences = v.base == ""
	p, err := v.input.ReadCompact(v.env, name)
	if err != nil {
		return nil, o, err
	}
	v.input.Differences = false
	if v.input.Base != nil {
		o.BaseTitle = o.Title
		if o.Base, err = compact.FromPprof(v.input.Base); err != nil {
			return nil, o, err
		}
	}
	if _, err := p.SampleType(v.input.SampleType); err != nil {
		return nil, o, fmt.Errorf("%s: %w", name, err)
	}
	if p.Locations() > manyLocations {
		verb.CollectSeldom()
	}
	o.FitAdvice = advice.Fitter(&v.input, p)
	if v.base == "" {
		return p, o, nil
	}
	if o.Base, err = v.input.ReadCompact(v.env, v.base); err != nil {
		return nil, o, err
	}
	o.BaseTitle = filepath.Base(perffile.InputName(v.base))
	var notes []string
	p, o.Base, notes = separate(p, o.Base)
	for _, note := range notes {
		fmt.Fprintf(v.env.Stderr, "hallmark: %s\n", plaintext.Line(note))
	}
	return p, o, nil
}

// viewProfile shows p, which was just recorded, in the browser until ctx is done. It
// asks no server, as the recorder does not.
func viewProfile(ctx context.Context, e *verb.Env, p *pprof.Profile, title string) error {
	return serve(ctx, e, view.Server{Browser: true}, symbolsource.Options{NoDebuginfod: true}, func() (*compact.Profile, view.Options, error) {
		shown, err := compact.FromPprof(p)
		return shown, view.Options{Title: title}, err
	})
}

// serve has s serve pages about what read returns until ctx is done. It opens a browser, if s wants
// one, only where there is a display for it, and not as root: a browser with root's
// rights would be open to every page that is shown in it.
func serve(ctx context.Context, e *verb.Env, s view.Server, symbols symbolsource.Options, read func() (*compact.Profile, view.Options, error)) error {
	source, err := symbols.Open(ctx, e)
	if err != nil {
		return err
	}
	defer source.Close()
	s.Browser = s.Browser && hasDisplay() && os.Geteuid() != 0
	s.Ready = func(url string) {
		source.Bar.Clear()
		fmt.Fprintf(source.Bar.Over(e.Stdout), "Serving %s until Ctrl-C\n", url)
	}
	s.Errors = source.Bar.Over(e.Stderr)
	err = s.Serve(ctx, func() (*web.Profile, error) {
		p, o, err := read()
		if err != nil {
			return nil, err
		}
		symbolizer := &local.Symbols{Library: source.Library}
		o.Symbols, o.Code = symbolizer, codeOf{symbolizer}
		shown, err := view.Prepare(source.Context, p, o)
		if err != nil && o.Base != nil {
			err = fmt.Errorf("%s less %s: %w", o.Title, o.BaseTitle, err)
		}
		return shown, err
	})
	if errors.Is(err, view.ErrNotLoopback) {
		return verb.Usage(err)
	}
	return err
}

func hasDisplay() bool {
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || os.Getenv("BROWSER") != ""
}

// separate keeps files of different content apart that claim one build ID, in profiles that are
// compared. It returns the comments about them, which the pages have as well.
func separate(p, base *compact.Profile) (*compact.Profile, *compact.Profile, []string) {
	ofP, ofBase := p.Places(), base.Places()
	notes := profile.Separate(ofBase, ofP)
	if notes == nil {
		return p, base, nil
	}
	ofP.Comments = append(ofP.Comments, notes...)
	return p.WithSymbols(ofP, nil), base.WithSymbols(ofBase, nil), notes
}

// codeOf shows instructions of the files on this machine.
type codeOf struct{ symbols *local.Symbols }

// Code returns the function that has an instruction at an offset.
func (c codeOf) Code(ctx context.Context, b *profile.Binary, at addr.Offset) (*web.Function, error) {
	code, err := c.symbols.Code(ctx, b, at)
	if err != nil {
		return nil, err
	}
	f := &web.Function{
		Start: code.Start, Virt: code.Virt, Bytes: code.Bytes,
		Name:  code.Function,
		Close: func() { code.Close() },
		Lines: func(addresses []addr.Virt) []web.Line {
			lines := make([]web.Line, len(addresses))
			for i, frame := range code.Lines(addresses) {
				lines[i] = web.Line{File: frame.File, Line: int64(frame.Line)}
			}
			return lines
		},
	}
	switch code.Machine {
	case elf.EM_X86_64:
		f.Arch = "amd64"
	case elf.EM_AARCH64:
		f.Arch = "arm64"
	}
	return f, nil
}
