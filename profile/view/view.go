// Package view shows a profile as web pages: flame graph, table of functions,
// source lines, search, and the difference from a second profile.
//
// The pages are pprof's (github.com/google/pprof/driver). What is ours is that
// symbols are looked up by identity, that nothing is fetched from anywhere, and
// that only this machine can see the pages. Nothing is executed but the user's
// browser, if that is wanted, and Graphviz's dot when the graph is asked for.
package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/pprof/driver"
	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// Options say what is shown. The zero value shows the profile's default sample
// type, without any symbols but those in the profile.
type Options struct {
	Base       *pprof.Profile   // subtracted from the profile; nil for none
	SampleType string           // sample type that is shown first; empty means the profile's default
	Symbols    profile.Symbols  // symbolizes what has no symbols; nil for none
	Browser    bool             // open the user's browser
	Ready      func(url string) // called when the pages are there; nil for no call
	Errors     io.Writer        // gets what goes wrong later, a line each; nil discards it
}

// Serve serves pages about p at address, a host and a port, until ctx is done,
// which is no error. Port 0 takes a free one; the host must be this machine's
// loopback interface. Serve takes over p and o.Base, and sets variables of
// pprof's driver: a program calls it once at a time.
func Serve(ctx context.Context, address string, p *pprof.Profile, o Options) error {
	l, err := listen(address)
	if err != nil {
		return err
	}
	defer l.Close()
	if o.Errors == nil {
		o.Errors = io.Discard
	}
	s := &source{profile: p, options: o}
	return driver.PProf(&driver.Options{
		Flagset:       s.flags(l),
		Fetch:         s,
		Sym:           s,
		Obj:           noObjects{},
		UI:            s,
		HTTPServer:    func(args *driver.HTTPServerArgs) error { return s.serve(ctx, l, args.Handlers) },
		HTTPTransport: offline{},
	})
}

// source is where the driver gets everything from: it implements the driver's
// Fetcher, Symbolizer and UI.
type source struct {
	profile  *pprof.Profile
	options  Options
	download []byte // the profile with symbols, compressed
}

// The names under which the driver fetches the two profiles.
const (
	profileName = "profile"
	baseName    = "base"
)

// Fetch returns one of the two profiles.
func (s *source) Fetch(name string, _, _ time.Duration) (*pprof.Profile, string, error) {
	if name == baseName {
		return s.options.Base, "", nil
	}
	return s.profile, "", nil
}

// Symbolize names all functions in what the driver made of the two profiles.
func (s *source) Symbolize(_ string, _ driver.MappingSources, p *pprof.Profile) error {
	if s.options.Symbols != nil {
		profile.Symbolize(p, s.options.Symbols)
	}
	var download bytes.Buffer
	if err := p.Write(&download); err != nil {
		return err
	}
	s.download = download.Bytes()
	if starts, ok := s.options.Symbols.(profile.Starts); ok {
		profile.NameStarts(p, starts)
	}
	// The flame graph leaves out frames without a function, and shows their time
	// as that of their callers.
	profile.NameUnknown(p)
	return nil
}

// ReadLine is not called: nobody types commands.
func (s *source) ReadLine(string) (string, error) { return "", io.EOF }

// Print discards the driver's progress messages.
func (s *source) Print(...any) {}

// PrintErr passes on what went wrong.
func (s *source) PrintErr(args ...any) { fmt.Fprintln(s.options.Errors, args...) }

// IsTerminal reports that the driver has no terminal.
func (s *source) IsTerminal() bool { return false }

// WantBrowser reports whether the driver shall open a browser.
func (s *source) WantBrowser() bool { return s.options.Browser }

// SetAutoComplete does nothing: nobody types commands.
func (s *source) SetAutoComplete(func(string) string) {}

// noObjects keeps the driver from opening binaries and running binutils: it
// would take the file that is now at a mapping's path for the one that was
// mapped.
type noObjects struct{}

var errNoObjects = errors.New("binaries are not opened")

func (noObjects) Open(string, uint64, uint64, uint64, string) (driver.ObjFile, error) {
	return nil, errNoObjects
}

func (noObjects) Disasm(string, uint64, uint64, bool) ([]driver.Inst, error) {
	return nil, errNoObjects
}

// offline keeps the driver from fetching anything.
type offline struct{}

var errOffline = errors.New("nothing is fetched from the network")

func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }
