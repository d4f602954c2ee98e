package view

import (
	"bytes"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
)

// pages returns the pages that there are. Those of the driver are taken as they are only if
// nothing is opened, executed or written for them:
//
//   - source opens files of any name that the profile has, which the program chose that was
//     profiled. The page is ours.
//   - graph has Graphviz draw names that the program chose, for any time, with the terminal
//     for its messages.
//   - saveconfig and deleteconfig write into the user's home.
//   - disasm needs the binaries (see noObjects).
//   - download would have the names that only the pages have.
//
// The one of callers and callees has a bound of its own.
func (s *source) pages(driver map[string]http.Handler) map[string]http.Handler {
	pages := map[string]http.Handler{
		"/source":   http.HandlerFunc(s.serveSource),
		"/download": http.HandlerFunc(s.serveDownload),
		"/graph":    missing("graph"),
		"/disasm":   missing("disassembly"),
	}
	for _, name := range []string{"/", "/flamegraph", "/top", "/peek"} {
		pages[name] = guarded(driver[name])
	}
	pages["/peek"] = s.bounded(pages["/peek"])
	return pages
}

// serveDownload sends the profile without the names that only the pages have.
func (s *source) serveDownload(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.google.protobuf+gzip")
	w.Header().Set("Content-Disposition", "attachment;filename=profile.pb.gz")
	w.Write(s.download)
}

// missing says where to find what the pages do not have.
func missing(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "There is no "+what+" here. Download the profile and use 'go tool pprof -http', "+
			"where you trust the profiled program.", http.StatusNotImplemented)
	}
}

// guarded serves a page of the driver's with permission for its own scripts alone, and
// without the ways to what is missing.
//
// The driver's templates escape names for the place where these stand, so that no name has a
// tag in it.
func guarded(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &answer{to: w, status: http.StatusOK}
		page.ServeHTTP(made, r)
		made.end()
	})
}

// edit is text of a page, and what stands in its place.
type edit struct{ text, with string }

const (
	endOfHead = "</head>"
	scriptTag = "<script>"
)

// deadEnds takes the entries for what is missing out of the driver's menus: its scripts look for
// the elements, so they stay, and show and lead to nothing.
var deadEnds = []edit{
	{`href="./graph" id="graphbtn">Graph</a>`, `id="graphbtn" hidden></a>`},
	{`href="./disasm" id="disasm">Disassemble</a>`, `id="disasm" hidden></a>`},
}

var longestEdit = longest(append([]edit{{text: endOfHead}, {text: scriptTag}}, deadEnds...))

func longest(edits []edit) (n int) {
	for _, e := range edits {
		n = max(n, len(e.text))
	}
	return n
}

// hidden hides what is there for what is missing.
const hidden = `<style>#graphbtn, #disasm, #config { display: none !important }</style>
`

// answer passes on what a page answers, and permits its scripts if it is HTML. A page may be
// large, and the driver writes it at once: no copy is made of it.
type answer struct {
	to     http.ResponseWriter
	status int
	begun  bool
	isHTML bool
	inBody bool // the head of the page has ended
	nonce  string
	rest   []byte // the last bytes, in which an edit may begin
}

func (a *answer) Header() http.Header    { return a.to.Header() }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	header := a.to.Header()
	if a.isHTML = strings.HasPrefix(header.Get("Content-Type"), "text/html"); a.isHTML {
		a.nonce = rand.Text()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", policy("'nonce-"+a.nonce+"'"))
	}
	a.to.WriteHeader(a.status)
}

// Write passes on all but the last bytes.
func (a *answer) Write(b []byte) (int, error) {
	a.begin()
	if !a.isHTML {
		return a.to.Write(b)
	}
	part := b
	if len(a.rest) > 0 {
		part = append(a.rest, b...)
	}
	a.rest = bytes.Clone(a.pass(part, longestEdit-1))
	return len(b), nil
}

// end passes on what was left.
func (a *answer) end() {
	a.begin()
	a.pass(a.rest, 0)
}

// pass passes on the edits in a part of the page, and what is before them, and all else but the
// last bytes, which it returns.
func (a *answer) pass(part []byte, keep int) (rest []byte) {
	for {
		at, found := a.next(part)
		if at < 0 {
			break
		}
		a.inBody = a.inBody || found.text == endOfHead
		a.to.Write(part[:at])
		io.WriteString(a.to, found.with)
		part = part[at+len(found.text):]
	}
	n := max(0, len(part)-keep)
	a.to.Write(part[:n])
	return part[n:]
}

// next returns the first edit in a part of the page, and where it is, -1 for nowhere.
func (a *answer) next(part []byte) (at int, first edit) {
	edits := []edit{{scriptTag, `<script nonce="` + a.nonce + `">`}}
	if a.inBody {
		edits = append(edits, deadEnds...)
	} else {
		edits = append(edits, edit{endOfHead, hidden + endOfHead})
	}
	at = -1
	for _, e := range edits {
		within := part
		if at >= 0 {
			within = part[:min(len(part), at+len(e.text)-1)]
		}
		if i := bytes.Index(within, []byte(e.text)); i >= 0 && (at < 0 || i < at) {
			at, first = i, e
		}
	}
	return at, first
}
