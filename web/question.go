package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/profile/query"
)

// question is a request for an answer about a profile.
type question struct {
	handler *handler
	ctx     context.Context
	w       http.ResponseWriter
	r       *http.Request
	query   url.Values
	shown   *Profile
}

// refusal is an answer that is no success, in words for people.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answer serves the answers of one kind. Each is whole before any of it is sent: a client that reads slowly takes no
// turn.
func (h *handler) answer(f func(*question) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &kept{header: http.Header{}}
		if err := h.inTurn(a, w, r, f); err != nil {
			if r.Context().Err() == nil {
				fail(w, err)
			}
			return
		}
		done, err := h.turns.Unsent(w, int64(a.body.Len()))
		if err != nil {
			fail(w, err)
			return
		}
		defer done()
		maps.Copy(w.Header(), a.header)
		w.Write(a.body.Bytes())
	})
}

// inTurn answers a question of a client into w once it has a turn.
func (h *handler) inTurn(w, client http.ResponseWriter, r *http.Request, f func(*question) error) error {
	done, err := h.turns.Turn(r.Context(), client)
	if err != nil {
		return err
	}
	defer done()
	q := &question{handler: h, ctx: r.Context(), w: w, r: r, query: r.URL.Query()}
	if err := q.open(); err != nil {
		return err
	}
	return f(q)
}

// download serves the profile. It is written to a file without a name first, as it may be large and the client slow, which
// keeps nobody else from it.
func (h *handler) download(w http.ResponseWriter, r *http.Request) {
	f, err := h.written(w, r)
	if err != nil {
		if r.Context().Err() == nil {
			fail(w, err)
		}
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/vnd.google.protobuf+gzip")
	w.Header().Set("Content-Disposition", "attachment;filename=profile.pb.gz")
	io.Copy(w, f)
}

// written returns a file with the profile.
func (h *handler) written(w http.ResponseWriter, r *http.Request) (*os.File, error) {
	done, err := h.turns.Download(w)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := atomicfile.Scratch()
	if err != nil {
		return nil, err
	}
	err = h.inTurn(w, w, r, func(q *question) error {
		if q.shown.Download == nil {
			return refuse(http.StatusNotFound, "the profile cannot be had here")
		}
		return q.shown.Download(f)
	})
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// fail sends an error, in one line of plain text: it may quote what was asked for.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var no *refusal
	switch {
	case errors.As(err, &no):
		status = no.status
	case errors.Is(err, ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, ErrBusy):
		status = http.StatusServiceUnavailable
	}
	http.Error(w, plaintext.Line(err.Error()), status)
}

// open finds the profile that is asked about.
func (q *question) open() (err error) {
	if q.shown, err = q.handler.source.Open(q.ctx, q.query.Get("p"), q.query.Get("base")); err != nil {
		return err
	}
	if v := q.query.Get("v"); v != "" && v != q.shown.Version {
		return refuse(http.StatusConflict, "The server has other names for this profile by now: load the page again.")
	}
	return nil
}

// Bounds of a regular expression: a name that is shown has 1,024 bytes, and signs of expressions are escaped. A small
// expression may still have very many states.
const (
	maxPattern = 4000 // bytes
	maxSearch  = 20 * time.Second
)

// pattern returns what a question looks for, nil where that is empty.
func (q *question) pattern(name string) (*regexp.Regexp, error) {
	text := q.query.Get(name)
	if text == "" {
		return nil, nil
	}
	if len(text) > maxPattern {
		return nil, refuse(http.StatusBadRequest, "%s is longer than %d bytes", name, maxPattern)
	}
	re, err := query.Pattern(text)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s: %s", name, err)
	}
	return re, nil
}

// find looks for an expression.
func (q *question) find(s *selected, re *regexp.Regexp) (query.Found, error) {
	ctx, cancel := context.WithTimeout(q.ctx, maxSearch)
	defer cancel()
	found, err := s.Find(ctx, re)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errSearch
	}
	return found, err
}

var errSearch = refuse(http.StatusUnprocessableEntity, "the search for this expression takes more than %v: a simpler one is found", maxSearch)

// number returns a number of the question, and what it is without one.
func (q *question) number(name string, without, least, most int64) (int64, error) {
	text := q.query.Get(name)
	if text == "" {
		return without, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refuse(http.StatusBadRequest, "%s %q is no number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// filter returns what the question selects.
func (q *question) filter() (f query.Filter, err error) {
	f.SampleType = cmp.Or(q.query.Get("type"), q.shown.SampleType)
	for _, p := range []struct {
		name string
		to   **regexp.Regexp
	}{{"focus", &f.Focus}, {"ignore", &f.Ignore}, {"hide", &f.Hide}, {"show", &f.Show}} {
		if *p.to, err = q.pattern(p.name); err != nil {
			return f, err
		}
	}
	if f.Labels, err = labelFilters(q.query["label"]); err != nil {
		return f, err
	}
	if f.With, err = q.framesOf("with"); err != nil {
		return f, err
	}
	if f.Without, err = q.framesOf("without"); err != nil {
		return f, err
	}
	f.From, f.To, err = q.span()
	return f, err
}

// span returns the range of time of the question, which counts from each profile's first sample.
func (q *question) span() (from, to int64, err error) {
	const most = 1 << 62
	if from, err = q.number("from", 0, 0, most); err != nil {
		return 0, 0, err
	}
	if to, err = q.number("to", 0, 0, most); err != nil || from == 0 && to == 0 {
		return 0, 0, err
	}
	whole, err := q.timeline()
	if err != nil {
		return 0, 0, err
	}
	if to == 0 || to > whole.To-whole.From {
		to = whole.To - whole.From
	}
	if from >= to {
		return 0, 0, refuse(http.StatusBadRequest, "the range of time is empty")
	}
	return from, to, nil
}

// timeline returns when the samples of the whole profile were taken.
func (q *question) timeline() (query.Timeline, error) {
	s, err := q.handler.selections.get(q.ctx, q.shown, query.Filter{SampleType: q.shown.SampleType})
	if err != nil {
		return query.Timeline{}, err
	}
	return s.wholeTime(), nil
}

// selection returns what the question selects.
func (q *question) selection() (*selected, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	return q.handler.selections.get(q.ctx, q.shown, f)
}

// frame returns the function that the question is about, by its number or its key.
func (q *question) frame() (int, error) { return q.frameOf(q.query.Get("fn")) }

// framesOf returns the functions of a filter, of which there may be several.
func (q *question) framesOf(name string) (frames []int, err error) {
	if len(q.query[name]) > maxLabels {
		return nil, refuse(http.StatusBadRequest, "more than %d functions", maxLabels)
	}
	for _, fn := range q.query[name] {
		frame, err := q.frameOf(fn)
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

func (q *question) frameOf(fn string) (int, error) {
	frames := q.shown.Set.Frames()
	if len(fn) < 10 {
		if n, err := strconv.Atoi(fn); err == nil && n >= 0 && n < len(frames) {
			return n, nil
		}
	} else if n, ok := q.shown.Set.FrameByKey(fn); ok {
		return n, nil
	}
	return 0, refuse(http.StatusNotFound, "the profile has no function %q", fn)
}

// subject returns the selection, and the function that the question is about.
func (q *question) subject() (s *selected, frame int, err error) {
	if s, err = q.selection(); err == nil {
		frame, err = q.frame()
	}
	return s, frame, err
}

// send sends values.
func (q *question) send(v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	sendBytes(q.w, q.r, b)
	return nil
}

// marshal returns values as JSON, in which nothing is but plain text, and nothing that ends a script.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := json.NewEncoder(plaintext.JSON(&b)).Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// sendBytes sends an answer, compressed if it is worth it and the browser can read that.
func sendBytes(w http.ResponseWriter, r *http.Request, b []byte) {
	const worth = 2000
	w.Header().Set("Vary", "Accept-Encoding")
	if len(b) < worth || !acceptsGzip(r) {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.Write(b)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	to, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	to.Write(b)
	to.Close()
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" && strings.ReplaceAll(params, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// maxName is how many bytes of a name are shown.
const maxName = 1 << 10

// plain returns a name that others chose as it is shown.
func plain(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	return plaintext.Line(name)
}
