// Package view shows a profile as web pages to the user who asked for it, on this machine.
//
// The pages are those of package web. This package decides who may see them: only the user who has
// the URL, on this machine. Nothing is fetched from anywhere. Nothing is executed but the user's
// browser, if that is wanted; no file is opened but sources in a directory that the user named,
// and files that the caller's symbols open by identity; and none is written.
package view

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/query"
	"hallmark/web"
)

// Options say what is shown. The zero value shows the profile's default sample
// type, without any symbols but those in the profile.
type Options struct {
	Title      string           // name of the profile
	Base       *compact.Profile // what the profile is compared with; nil for none
	BaseTitle  string           // name of that
	SampleType string           // sample type that is shown first; empty means the profile's default
	Symbols    profile.Symbols  // symbolizes what has no symbols; nil for none
	Sources    string           // directory whose files are shown as source lines; empty for none
	Code       web.Code         // shows instructions; nil for none
	Packages   web.Packages     // knows packages; nil for none
	FitAdvice  func(*profile.Coverage)
	Browser    bool             // open the user's browser
	Ready      func(url string) // called when the pages are there, with the URL that opens them; nil for no call
	Errors     io.Writer        // gets what goes wrong later, a line each; nil discards it
}

// Serve serves pages about p at address, a host and a port, until ctx is done,
// which is no error. Port 0 takes a free one; the host must be this machine's
// loopback interface. The URL that Ready gets contains a key: whoever has it sees the pages.
func Serve(ctx context.Context, address string, p *compact.Profile, o Options) error {
	l, err := listen(address)
	if err != nil {
		return err
	}
	defer l.Close()
	shown, err := Prepare(p, o)
	if err != nil {
		return err
	}
	if o.Sources != "" {
		dir, err := os.OpenFile(o.Sources, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		shown.Texts = &texts{dir, o.Sources}
	}
	if o.Errors == nil {
		o.Errors = io.Discard
	}
	s := &server{options: o, errors: plain{o.Errors}}
	return s.serve(ctx, l, web.Handler(only{shown}))
}

// Prepare returns p as pages show it: with symbols, and compared with the base of the options.
func Prepare(p *compact.Profile, o Options) (*web.Profile, error) {
	if p == nil {
		return nil, errors.New("no profile")
	}
	if _, err := p.SampleType(o.SampleType); err != nil {
		return nil, err
	}
	whole, shown := symbolized(p, o.Symbols)
	var base *compact.Profile
	if o.Base != nil {
		if err := comparable(p, o.Base, o.SampleType); err != nil {
			return nil, err
		}
		_, base = symbolized(o.Base, o.Symbols)
	}
	return &web.Profile{
		Set:   query.New(shown, base),
		Title: o.Title, BaseTitle: o.BaseTitle, SampleType: o.SampleType,
		Code: o.Code, Packages: o.Packages, FitAdvice: o.FitAdvice,
		Download: func(w io.Writer) error { return profile.Write(w, whole.Pprof()) },
	}, nil
}

// comparable returns an error if a base does not count what is shown of p.
func comparable(p, base *compact.Profile, sampleType string) error {
	i, err := p.SampleType(sampleType)
	if err != nil {
		return err
	}
	_, err = base.SampleType(p.SampleTypes()[i].Type)
	return err
}

// symbolized returns p with symbols; and the same with the names that code without symbols has on
// pages alone.
func symbolized(p *compact.Profile, symbols profile.Symbols) (whole, shown *compact.Profile) {
	if symbols == nil {
		return p, p
	}
	places := p.Places()
	misses := profile.Symbolize(places, symbols)
	whole = p.WithSymbols(places, misses)
	starts, ok := symbols.(profile.Starts)
	if !ok {
		return whole, whole
	}
	profile.NameStarts(places, starts)
	return whole, p.WithSymbols(places, misses)
}

// only is a source of one profile.
type only struct{ profile *web.Profile }

func (o only) Open(_ context.Context, id, base string) (*web.Profile, error) {
	if id != "" || base != "" {
		return nil, web.ErrUnknown
	}
	return o.profile, nil
}
