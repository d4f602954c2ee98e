package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/profile/compact"
	"hallmark/profile/local"
	"hallmark/profile/view"
	"hallmark/web"
)

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
	if !c.noSymbols {
		s, err := c.symbols.Open(context.Background(), c.env)
		if err != nil {
			return err
		}
		defer s.Close()
		o.Symbols = &local.Symbols{Library: s.Library, Context: s.Context}
	}
	shown, err := view.Prepare(all, o)
	if err != nil {
		return err
	}
	return web.WriteFile(w, shown)
}
