// Package view shows a profile as web pages: flame graph, table of functions,
// source lines, search, and the difference from a second profile.
//
// The pages are pprof's (github.com/google/pprof/driver), but for the source lines. What is
// ours is that symbols are looked up by identity, that nothing is fetched from anywhere, and
// that only the user who has the URL can see the pages, on this machine. Nothing is executed
// but the user's browser, if that is wanted; no file is opened but sources in a directory that
// the user named, and none is written.
//
// A profile is full of text that others chose: whoever built a program, or ran one while the
// machine was recorded, chose names of functions and files. So this text opens nothing (see
// tokens), steers no terminal (see clean), and stays text in a browser (see policy).
package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/driver"
	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// Options say what is shown. The zero value shows the profile's default sample
// type, without any symbols but those in the profile.
type Options struct {
	Base       *pprof.Profile   // subtracted from the profile; nil for none
	SampleType string           // sample type that is shown first; empty means the profile's default
	Symbols    profile.Symbols  // symbolizes what has no symbols; nil for none
	Sources    string           // directory whose files are shown as source lines; empty for none
	Browser    bool             // open the user's browser
	Ready      func(url string) // called when the pages are there, with the URL that opens them; nil for no call
	Errors     io.Writer        // gets what goes wrong later, a line each; nil discards it
}

// Serve serves pages about p at address, a host and a port, until ctx is done,
// which is no error. Port 0 takes a free one; the host must be this machine's
// loopback interface. The URL that Ready gets contains a key: whoever has it sees the pages.
//
// Serve takes over p and o.Base, and sets variables of pprof's driver and, until the pages are
// there, of the environment: a program calls it once at a time.
func Serve(ctx context.Context, address string, p *pprof.Profile, o Options) error {
	if p == nil {
		return errors.New("no profile") // the driver would look for a file of that name
	}
	l, err := listen(address)
	if err != nil {
		return err
	}
	defer l.Close()
	s := &source{profile: p, options: o}
	if o.Sources != "" {
		if s.sources, err = os.OpenFile(o.Sources, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		defer s.sources.Close()
	}
	if s.options.Errors == nil {
		s.options.Errors = io.Discard
	}
	s.options.Errors = plain{s.options.Errors}
	s.names.hide(p)
	if o.Base != nil {
		s.names.hide(o.Base)
	}
	restore := hideHome()
	defer restore()
	return driver.PProf(&driver.Options{
		Flagset: s.flags(l),
		Fetch:   s,
		Sym:     s,
		Obj:     noObjects{},
		UI:      s,
		HTTPServer: func(args *driver.HTTPServerArgs) error {
			restore()
			return s.serve(ctx, l, args.Handlers)
		},
		HTTPTransport: offline{},
	})
}

// hideHome keeps the driver from settings that it reads for each page, and from binaries that
// it lists, which are below the user's home: with sudo that may be the home of another. The
// result undoes it.
func hideHome() (restore func()) {
	var undo []func()
	for _, name := range []string{"XDG_CONFIG_HOME", "PPROF_BINARY_PATH"} {
		if old, ok := os.LookupEnv(name); ok {
			undo = append(undo, func() { os.Setenv(name, old) })
		} else {
			undo = append(undo, func() { os.Unsetenv(name) })
		}
		os.Setenv(name, os.DevNull) // a path that nothing is below
	}
	return sync.OnceFunc(func() {
		for _, f := range undo {
			f()
		}
	})
}

// source is where the driver gets everything from: it implements the driver's
// Fetcher, Symbolizer and UI.
type source struct {
	profile  *pprof.Profile
	options  Options
	names    tokens
	sources  *os.File       // a place (O_PATH); nil for none
	download []byte         // the profile with symbols, compressed
	shown    *pprof.Profile // what the pages show
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
	s.names.restore(p)
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
	clean(p)
	reduce(p)
	s.shown = p
	return nil
}

// ReadLine is not called: nobody types commands.
func (s *source) ReadLine(string) (string, error) { return "", io.EOF }

// Print discards the driver's progress messages.
func (s *source) Print(...any) {}

// PrintErr passes on what went wrong, in one line: it may quote what was asked for.
func (s *source) PrintErr(args ...any) {
	fmt.Fprintln(s.options.Errors, plaintext.Line(strings.TrimSuffix(fmt.Sprintln(args...), "\n")))
}

// IsTerminal reports that the driver has no terminal.
func (s *source) IsTerminal() bool { return false }

// WantBrowser keeps the driver from opening a browser: it does not know the URL.
func (s *source) WantBrowser() bool { return false }

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
