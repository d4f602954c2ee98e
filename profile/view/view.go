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
	Code       web.Code         // shows instructions; nil for none
	Packages   web.Packages     // knows packages; nil for none
	FitAdvice  func(*profile.Coverage)
}

// Prepare returns p as pages show it: with symbols, and compared with the base of the options. The error is that of
// ctx if it is done before all symbols were asked for.
func Prepare(ctx context.Context, p *compact.Profile, o Options) (*web.Profile, error) {
	if p == nil {
		return nil, errors.New("no profile")
	}
	if _, err := p.SampleType(o.SampleType); err != nil {
		return nil, err
	}
	whole, shown, err := symbolized(ctx, p, o.Symbols)
	if err != nil {
		return nil, err
	}
	if err := whole.Check(); err != nil {
		return nil, err
	}
	var base *compact.Profile
	if o.Base != nil {
		if err := comparable(p, o.Base, o.SampleType); err != nil {
			return nil, err
		}
		if _, base, err = symbolized(ctx, o.Base, o.Symbols); err != nil {
			return nil, err
		}
		if err := base.Check(); err != nil {
			return nil, err
		}
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
// pages alone, and without the frames that are not worth to be shown.
func symbolized(ctx context.Context, p *compact.Profile, symbols profile.Symbols) (whole, shown *compact.Profile, err error) {
	whole, shown = p, p
	if symbols != nil {
		places := p.Places()
		misses, err := profile.Symbolize(ctx, places, symbols)
		if err != nil {
			return nil, nil, err
		}
		whole = p.WithSymbols(places, misses)
		shown = whole
		if starts, ok := symbols.(profile.Starts); ok {
			profile.NameStarts(ctx, places, starts)
			shown = p.WithSymbols(places, misses)
		}
	}
	shown, err = shown.Interesting()
	return whole, shown, err
}
