package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/profile/view"
)

const viewLong = `Show a profile in the browser: flame graph, table of functions, callers and
callees, source lines, search, and the difference from a second profile.

Only this machine can see the pages: they are served on the loopback interface,
until Ctrl-C. To look from elsewhere, forward the port (ssh -L). Frames without
symbols get them as with 'hallmark report'. FILE may be a recording by perf, as
there; --event all shows all of its events, which the pages choose from.`

func newViewCommand(e *env) *cobra.Command {
	v := viewer{env: e}
	cmd := &cobra.Command{
		Use:   "view [flags] FILE",
		Short: "Show a profile as a flame graph and tables in the browser",
		Long:  viewLong,
		Example: `  hallmark view out.pb.gz
  hallmark view --diff before.pb.gz after.pb.gz
  hallmark view --http 127.0.0.1:8080 --no-browser out.pb.gz`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := interruptible()
			defer stop()
			return v.run(ctx, args[0])
		},
	}
	v.input.addFlags(cmd.Flags())
	v.input.symbols = &v.symbols
	v.symbols.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&v.base, "diff", "", "show the difference from the profile `BASE`")
	cmd.Flags().StringVar(&v.address, "http", anyPort, "serve at `HOST:PORT`, port 0 takes a free one")
	cmd.Flags().BoolVar(&v.noBrowser, "no-browser", false, "do not open a browser")
	return cmd
}

type viewer struct {
	env       *env
	input     input
	symbols   symbolOptions
	base      string
	address   string
	noBrowser bool
}

func (v *viewer) run(ctx context.Context, name string) error {
	v.input.tell = true
	p, err := v.input.read(v.env, name)
	if err != nil {
		return err
	}
	if _, err := profile.SampleIndex(p, v.input.sampleType); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var base *pprof.Profile
	if v.base != "" {
		if base, err = v.input.read(v.env, v.base); err != nil {
			return err
		}
	}
	err = serve(ctx, v.env, p, v.address, v.symbols, view.Options{
		Base:       base,
		SampleType: v.input.sampleType,
		Browser:    !v.noBrowser,
	})
	if err != nil && base != nil {
		return fmt.Errorf("%s less %s: %w", name, v.base, err)
	}
	return err
}

// anyPort is an address on which a profile may be shown.
const anyPort = "127.0.0.1:0"

// viewProfile shows p, which was just recorded, in the browser until ctx is done. It
// asks no server, as the recorder does not.
func viewProfile(ctx context.Context, e *env, p *pprof.Profile) error {
	return serve(ctx, e, p, anyPort, symbolOptions{noDebuginfod: true}, view.Options{Browser: true})
}

// serve serves pages about p until ctx is done. It opens a browser, if o wants
// one, only where there is a display for it.
func serve(ctx context.Context, e *env, p *pprof.Profile, address string, symbols symbolOptions, o view.Options) error {
	s, err := symbols.open(ctx, e)
	if err != nil {
		return err
	}
	defer s.close()
	o.Browser = o.Browser && hasDisplay()
	o.Symbols = &local.Symbols{Library: s.Library, Context: s.ctx}
	o.Ready = func(url string) {
		s.bar.Clear()
		fmt.Fprintf(e.stdout, "Serving %s until Ctrl-C\n", url)
	}
	o.Errors = e.stderr
	err = view.Serve(ctx, address, p, o)
	if errors.Is(err, view.ErrNotLoopback) {
		return usageError{err}
	}
	return err
}

func hasDisplay() bool {
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || os.Getenv("BROWSER") != ""
}
