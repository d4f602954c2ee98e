package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/profile/svg"
)

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
		symbols := &local.Symbols{Library: s.Library, Context: s.Context}
		p = p.Copy() // what is named here is not for others
		o.Misses = profile.Symbolize(p, symbols)
		profile.NameStarts(p, symbols)
	}
	return svg.Write(w, p, o)
}
