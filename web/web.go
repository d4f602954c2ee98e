// Package web shows profiles in a browser: flame graph, tables, time, coverage, and the
// difference of two. It is a handler of HTTP, with pages of its own that it has inside, and
// knows nothing of where profiles come from (see [Source]), nor of who may see them: that is
// for the handler around it to say.
//
// A profile is full of text that others chose. All of it leaves as data (JSON, or what
// appendTree writes), with what is no plain text replaced; the pages make text of it, never
// markup, and the policy of each answer lets a browser run the scripts of the pages alone.
package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/profile/query"
)

// Source is where profiles come from: a file, a store, an agent.
type Source interface {
	// Open returns a profile, or one compared with a base where that is not empty. Both are as
	// the URL has them, so anybody may have written them; a source of one profile gets two empty
	// strings. The error is shown as text; ErrUnknown is that there is no such profile. The
	// profile is kept by the source: the same question gets the same *Profile while it is known.
	Open(ctx context.Context, id, base string) (*Profile, error)
}

// ErrUnknown says that a source has no such profile.
var ErrUnknown = errors.New("there is no such profile")

// ErrBusy says that a source has no room for what is asked for, and may have it soon.
var ErrBusy = errors.New("the server is busy: try again soon")

// Profile is what is shown. It must not be changed afterwards.
type Profile struct {
	Set        *query.Set
	Title      string // the name of the profile
	BaseTitle  string // that of what it is compared with
	SampleType string // shown first; empty for the profile's default
	// Version names the numbers of functions and binaries (query.Set.Version), where the same profile may be
	// opened again with other names. Questions of a page that has other numbers are refused. "" is for a profile
	// that stays as it is.
	Version string

	// Sources of what can be shown beside it. Each may be nil.
	Texts    Texts
	Code     Code
	Packages Packages
	// Download writes the profile.
	Download func(io.Writer) error
	// FitAdvice sets what helps against gaps where that depends on the recording.
	FitAdvice func(*profile.Coverage)
}

// Texts has sources of programs.
type Texts interface {
	// Text returns the lines of the file that the debug information calls name, and which file
	// that is, for people; or why there is none. The name may be anything. Nothing of both is no
	// error: sources are not shown at all.
	Text(name string) (lines []string, shown string, err error)
}

// Code has the instructions of files.
type Code interface {
	// Code returns the bytes of the function that has an instruction at an offset of a file,
	// which has the identity of b, or of a part of it around the offset.
	Code(ctx context.Context, b *profile.Binary, at addr.Offset) (*Function, error)
}

// Function is the code of a function.
type Function struct {
	Arch  string      // as in GOARCH
	Start addr.Offset // of the first byte
	Virt  addr.Virt   // virtual address of it
	Bytes []byte

	// Name returns the name of the function at an address, "" if it is not known. It may be nil.
	Name func(v addr.Virt) string
	// Lines returns the source lines of addresses. It may be nil.
	Lines func(v []addr.Virt) []Line
	// Close is called when the function is no longer used. It may be nil.
	Close func()
}

// Line is a line of a source.
type Line struct {
	File string // "" where it is not known
	Line int64
}

// Packages knows packages of files.
type Packages interface {
	// Package returns the name and version of the package whose file is at path and has the
	// identity of b, "" where that is not known.
	Package(b *profile.Binary) string
}

// handler answers the questions of the pages.
type handler struct {
	source     Source
	selections cache
	turns      Turns
}

// Turns divide what answers take between those who ask: of one handler, or of several. The answers of a profile of a million
// stacks take as long as a second of one processor. So each processor has one question at a time, and others wait. All of the
// methods take what answers a client, and return what ends it.
type Turns interface {
	// Turn waits for a processor, until ctx is done.
	Turn(ctx context.Context, w http.ResponseWriter) (done func(), err error)
	// Download is for a profile that is written. The error is ErrBusy where there are too many.
	Download(w http.ResponseWriter) (done func(), err error)
	// Unsent is for an answer of so many bytes, which waits for its client. The error is ErrBusy where that are too many.
	Unsent(w http.ResponseWriter, bytes int64) (done func(), err error)
}

// Bounds of what waits at a time.
const (
	MaxUnsent    = 256 << 20 // bytes of answers that clients have not read
	MaxDownloads = 8         // profiles that are written
)

// turns are for one client.
type turns struct {
	places    chan struct{}
	downloads chan struct{}
	unsent    atomic.Int64
}

// NewTurns returns turns for all processors, of which one client alone knows.
func NewTurns() Turns {
	return &turns{places: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), downloads: make(chan struct{}, MaxDownloads)}
}

func (t *turns) Turn(ctx context.Context, _ http.ResponseWriter) (func(), error) {
	select {
	case t.places <- struct{}{}:
		return func() { <-t.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *turns) Download(http.ResponseWriter) (func(), error) {
	select {
	case t.downloads <- struct{}{}:
		return func() { <-t.downloads }, nil
	default:
		return nil, ErrBusy
	}
}

func (t *turns) Unsent(_ http.ResponseWriter, bytes int64) (func(), error) {
	if t.unsent.Add(bytes) > MaxUnsent {
		t.unsent.Add(-bytes)
		return nil, ErrBusy
	}
	return func() { t.unsent.Add(-bytes) }, nil
}

// Handler returns what serves the pages, at "/", and answers their questions, below "/api/".
// All are GET or HEAD: nothing can be changed. To have them below another path, which ends with
// a slash, put it behind http.StripPrefix.
func Handler(source Source, turns Turns) http.Handler {
	h := &handler{source: source, turns: turns}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage("app/index.html"))
	mux.Handle("GET /app/", http.HandlerFunc(serveAsset))
	for name, answer := range map[string]func(*question) error{
		"profile": (*question).profile, "coverage": (*question).coverage, "search": (*question).search,
		"tree": (*question).tree, "callers": (*question).callers, "callees": (*question).callees,
		"functions": (*question).functions, "binaries": (*question).binaries, "labels": (*question).labels,
		"function": (*question).function, "lines": (*question).lines, "code": (*question).code, "time": (*question).time,
	} {
		mux.Handle("GET /api/"+name, h.answer(answer))
	}
	mux.HandleFunc("GET /api/download", h.download)
	return secured(mux)
}

// Site returns what serves the page of a server that keeps profiles and files, at "/", and what it loads, below
// "/app/". The page asks the server around it for all that it shows.
func Site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage("app/site.html"))
	mux.HandleFunc("GET /app/", serveAsset)
	return secured(mux)
}

// Warm has a handler add up what the first page asks for, while a browser starts.
func Warm(ctx context.Context, pages http.Handler) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/api/search", nil)
	if err == nil {
		pages.ServeHTTP(&kept{header: http.Header{}}, r)
	}
}

// Policy is the Content-Security-Policy of all answers: the pages load and ask what is their own,
// run the scripts that are files of theirs, make no markup of text, and send nothing elsewhere.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// secured sets the headers of every answer.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", Policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if header.Get("Cache-Control") == "" {
			header.Set("Cache-Control", "no-store")
		}
		next.ServeHTTP(w, r)
	})
}
