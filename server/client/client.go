// Package client speaks with a symbol server: it sends files, and asks for functions and lines.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/columns"
)

// Client speaks with one server. Its fields must not change after its first use; its methods may
// be called by several goroutines at once.
type Client struct {
	// URL is that of the server, without a path behind its own.
	URL string
	// Token is sent with each request, "" for none.
	Token string
	// HTTP makes the requests; nil means one that follows no redirects.
	HTTP *http.Client
	// Patience is how long a server may take nothing of a request, may let wait for its answer, and
	// may take for an answer: a minute when 0, five times as much for symbols.
	Patience time.Duration
	// Retries is how often a request is repeated after a failure that may pass, 3 when 0.
	Retries int
	// OnRetry is called before each pause ahead of a repetition, by several goroutines at once; nil for no call.
	OnRetry func(err error, pause time.Duration)
}

// An Error is an answer of the server that is no success.
type Error struct {
	URL     string
	Status  int
	Message string
	After   time.Duration // in which the server wants no other request; 0 where it does not say
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (HTTP %d)", e.URL, e.Message, e.Status) }

var standard = withTLS(nil)

// WithCertificate returns what makes requests as a Client does by itself, with a certificate of the client's own.
func WithCertificate(pair tls.Certificate) *http.Client {
	return withTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
}

func withTLS(c *tls.Config) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16
	if c != nil {
		t.TLSClientConfig = c
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// New returns a Client of the server with this URL.
func New(raw, token string) (*Client, error) {
	if !strings.Contains(raw, "://") {
		return nil, fmt.Errorf("%q is no URL of a server: http:// or https:// is missing before it", raw[strings.LastIndex(raw, "@")+1:])
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no URL of a server: http://HOST:PORT or https://HOST", u.Redacted())
	}
	return &Client{URL: strings.TrimRight(u.String(), "/"), Token: token}, nil
}

// request is one that can be repeated.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         func() (io.Reader, int64) // nil for none
	isLong       bool                      // the answer may take longer
}

// errSilent ends a request. It is not repeated: the next one would take as long.
var errSilent = errors.New("the server does not answer, or too slowly")

// watched ends a request of which nothing moves.
type watched struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	timer *time.Timer
}

func watch(ctx context.Context, patience time.Duration) *watched {
	w := new(watched)
	w.ctx, w.stop = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(patience, func() { w.stop(errSilent) })
	return w
}

// why returns the reason of a failure.
func (w *watched) why(err error) error {
	if err != nil && err != io.EOF && context.Cause(w.ctx) == errSilent {
		return errSilent
	}
	return err
}

func (w *watched) end() {
	w.timer.Stop()
	w.stop(nil)
}

// sending is the body of a request, of which the server has to take some now and then.
type sending struct {
	io.Reader
	w        *watched
	patience time.Duration
}

func (s *sending) Read(p []byte) (int, error) {
	s.w.timer.Reset(s.patience)
	return s.Reader.Read(p)
}

// receiving is the body of an answer, which has to end.
type receiving struct {
	io.ReadCloser
	w *watched
}

func (r *receiving) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.w.why(err)
}

func (r *receiving) Close() error {
	err := r.ReadCloser.Close()
	r.w.end()
	return err
}

// do makes a request, again where that may help, and returns the answer for the caller to close.
// An answer that is no success is an *Error.
func (c *Client) do(ctx context.Context, q request) (*http.Response, error) {
	retries := c.Retries
	if retries == 0 {
		retries = 3
	}
	for try := 0; ; try++ {
		resp, err := c.once(ctx, q)
		wait, again := mayPass(err, try)
		if err == nil || !again || try >= retries || ctx.Err() != nil {
			return resp, err
		}
		if c.OnRetry != nil {
			c.OnRetry(err, wait)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// longestAfter is how long a request waits to be repeated. A caller that is asked to wait longer learns of it at once.
const longestAfter = 30 * time.Second

// mayPass reports whether an error may be gone when the request is repeated, and when.
func mayPass(err error, try int) (time.Duration, bool) {
	wait := 250 * time.Millisecond << min(try, 5)
	var answer *Error
	if errors.As(err, &answer) {
		switch answer.Status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
			if answer.After > longestAfter {
				return 0, false
			}
			return max(wait, time.Second, answer.After), true
		}
		return 0, false
	}
	return wait, err != nil && !errors.Is(err, errSilent) && !isOfTLS(err)
}

// isOfTLS reports whether an error is one of the certificates, or of the protocols, of the two sides: it comes again.
func isOfTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var op *net.OpError
	return errors.As(err, &verification) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &op) && op.Op == "remote error" // an alert
}

func (c *Client) once(ctx context.Context, q request) (*http.Response, error) {
	target := c.URL + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	patience := cmp.Or(c.Patience, time.Minute)
	w := watch(ctx, patience)
	r, err := http.NewRequestWithContext(w.ctx, q.method, target, nil)
	if err != nil {
		w.end()
		return nil, err
	}
	if q.body != nil {
		body, size := q.body()
		r.Body, r.ContentLength = io.NopCloser(&sending{body, w, patience}), size
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = standard
	}
	resp, err := client.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		err = fmt.Errorf("%s: %w", c.URL, w.why(err))
		w.end()
		return nil, err
	}
	if q.isLong {
		patience *= 5
	}
	w.timer.Reset(patience)
	resp.Body = &receiving{resp.Body, w}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, c.failure(resp)
	}
	return resp, nil
}

const maxMessage = 64 << 10

// failure returns an answer that is no success as an error.
func (c *Client) failure(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	var e api.Error
	if json.Unmarshal(b, &e) != nil || e.Error == "" {
		e.Error = strings.TrimSpace(resp.Status)
		if resp.StatusCode == http.StatusBadRequest && strings.HasPrefix(c.URL, "http:") && wantsTLS(b) {
			e.Error = "the server wants TLS: its URL begins with https://"
		}
	}
	after, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		after = 0 // none, or a date
	}
	return &Error{URL: c.URL, Status: resp.StatusCode, Message: e.Error, After: time.Duration(after) * time.Second}
}

// wantsTLS reports whether a server says in the text of a refusal that it got a request without TLS: one in Go, and nginx.
func wantsTLS(body []byte) bool {
	return bytes.Contains(body, []byte("HTTP request to an HTTPS server")) || bytes.Contains(body, []byte("HTTP request was sent to HTTPS port"))
}

// maxAnswer is how many bytes of JSON an answer may have. In memory a list of empty values takes fifty
// times as much.
const maxAnswer = 4 << 20

// call sends a value as JSON, nil for none, and reads the answer into another one.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	q := request{method: method, path: path, query: query}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		q.header = http.Header{"Content-Type": {"application/json"}}
		q.body = func() (io.Reader, int64) { return bytes.NewReader(b), int64(len(b)) }
	}
	resp, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s: its answer is not what it should be: %w", c.URL, err)
	}
	return nil
}

// Identity returns what the server knows of an identity.
func (c *Client) Identity(ctx context.Context, id buildid.ID) (out api.Identity, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/identities/"+url.PathEscape(id.String()), nil, nil, &out)
}

// Plan asks which of at most api.MaxPlan files the server wants.
func (c *Client) Plan(ctx context.Context, files []api.PlanFile) ([]api.PlannedFile, error) {
	var out api.Planned
	if err := c.call(ctx, http.MethodPost, "/v1/plan", nil, api.Plan{Files: files}, &out); err != nil {
		return nil, err
	}
	if len(out.Files) != len(files) {
		return nil, fmt.Errorf("%s: it answered for %d files of %d", c.URL, len(out.Files), len(files))
	}
	return out.Files, nil
}

// A File is one to be sent. The server reads its identity from its bytes; what is said here it
// compares with them, or shows.
type File struct {
	api.PlanFile
	Modified time.Time // when it was changed last; zero where that is not known
	Content  io.ReaderAt
}

func (f *File) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"id": f.ID.String(), "name": f.Name, "archive": f.Archive, "package": f.Package, "build": f.Build} {
		if value != "" {
			q.Set(name, value)
		}
	}
	setModified(q, f.Modified)
	return q
}

func setModified(q url.Values, modified time.Time) {
	if modified.Unix() > 0 {
		q.Set("modified", strconv.FormatInt(modified.Unix(), 10))
	}
}

// Send sends a file of which the server has the first have bytes. sent is called with how many
// more it has; nil for no call. A large file goes in parts, so that what is lost with a
// connection is one of them.
func (c *Client) Send(ctx context.Context, f *File, have int64, sent func(int64)) (out api.Stored, err error) {
	if sent == nil {
		sent = func(int64) {}
	}
	if f.Size <= api.MaxChunk && have == 0 {
		err := c.stored(ctx, request{method: http.MethodPut, path: "/v1/files/" + f.SHA256, query: f.query(), body: f.section(0, f.Size)}, &out)
		if err == nil {
			sent(f.Size)
		}
		return out, err
	}
	for off := have; off < f.Size; off += api.MaxChunk {
		n := min(api.MaxChunk, f.Size-off)
		resp, err := c.do(ctx, request{method: http.MethodPut, path: "/v1/uploads/" + f.SHA256 + "/" + strconv.FormatInt(off, 10), body: f.section(off, n)})
		if err != nil {
			return out, err
		}
		resp.Body.Close()
		sent(n)
	}
	return out, c.stored(ctx, request{method: http.MethodPost, path: "/v1/uploads/" + f.SHA256, query: f.query()}, &out)
}

func (f *File) section(off, n int64) func() (io.Reader, int64) {
	return func() (io.Reader, int64) { return io.NewSectionReader(f.Content, off, n), n }
}

func (c *Client) stored(ctx context.Context, q request, out *api.Stored) error {
	resp, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(out)
}

// SendSource sends the source file of a path, as debug information names it, for an identity. modified is when it was
// changed last, zero where that is not known.
func (c *Client) SendSource(ctx context.Context, id buildid.ID, path string, modified time.Time, content io.ReaderAt, size int64) error {
	f := File{Content: content}
	q := url.Values{"path": {path}}
	setModified(q, modified)
	resp, err := c.do(ctx, request{method: http.MethodPut, path: "/v1/sources/" + url.PathEscape(id.String()), query: q, body: f.section(0, size)})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// SendProfile sends a profile of any format, which the server keeps as it is. It returns what the server knows of it
// then, and the URL of its page.
func (c *Client) SendProfile(ctx context.Context, title string, content io.ReaderAt, size int64) (out api.KeptProfile, page string, err error) {
	f := File{Content: content}
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/profiles", query: url.Values{"title": {title}}, isLong: true, body: f.section(0, size)})
	if err != nil {
		return out, "", err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(&out); err != nil {
		return out, "", fmt.Errorf("%s: its answer is not what it should be: %w", c.URL, err)
	}
	return out, c.URL + "/profiles/" + url.PathEscape(out.ID), nil
}

// Symbolize asks for functions and lines. The addresses of each file must ascend.
func (c *Client) Symbolize(ctx context.Context, q *columns.Question) (*columns.Answer, error) {
	b := q.Append(nil)
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/symbolize", header: http.Header{"Content-Type": {columns.MediaType}}, isLong: true,
		body: func() (io.Reader, int64) { return bytes.NewReader(b), int64(len(b)) }})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxSymbols))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.URL, err)
	}
	a, err := columns.ParseAnswer(answer, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.URL, err)
	}
	return a, nil
}

const maxSymbols = 128 << 20 // bytes of an answer
