package forward

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend answers requests with one answer after the other, the last one for all further ones.
type backend struct {
	*httptest.Server
	mu      sync.Mutex
	answers []answer
	got     []string
	headers []http.Header
}

type answer struct {
	status int
	after  string
	body   []byte
}

func newBackend(t *testing.T, answers ...answer) *backend {
	b := &backend{answers: answers}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil || r.Method != "POST" || r.URL.Path != Path || r.Header.Get("Content-Type") != "application/x-protobuf" {
		w.WriteHeader(400)
		return
	}
	body, _ := io.ReadAll(z)
	b.mu.Lock()
	a := b.answers[0]
	if len(b.answers) > 1 {
		b.answers = b.answers[1:]
	}
	b.got, b.headers = append(b.got, string(body)), append(b.headers, r.Header)
	b.mu.Unlock()
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// run sends messages and returns the results and the pauses between tries.
func run(t *testing.T, f *Forwarder, messages ...string) (results []string, pauses []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	f.OnResult = func(r string) { mu.Lock(); defer mu.Unlock(); results = append(results, r) }
	if f.pause == nil {
		f.pause = func(_ context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			pauses = append(pauses, d)
			return nil
		}
	}
	f.Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, m := range messages {
		if err := f.Add([]byte(m), m, 2); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	f.Run(t.Context())
	if n := f.Queued(); n != 0 {
		t.Errorf("%d bytes are left in the queue", n)
	}
	return results, pauses
}

func forwarder(t *testing.T, b *backend) *Forwarder {
	t.Helper()
	url, err := ParseURL(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Forwarder{URL: url, Senders: 1, Header: http.Header{"X-Scope": {"team"}}}
}

func TestSend(t *testing.T) {
	b := newBackend(t, answer{status: 200})
	f := forwarder(t, b)
	f.Prepare = func(_ context.Context, b []byte) ([]byte, error) {
		switch {
		case bytes.Equal(b, []byte("bad")):
			return nil, errors.New("cannot be named")
		case bytes.Equal(b, []byte("worse")):
			panic("a defect")
		}
		return append(b, " with names"...), nil
	}
	results, _ := run(t, f, "one", "bad", "worse", "two")
	if want := []string{Sent, Sent, Dropped, Sent}; !slices.Equal(results, want) {
		t.Errorf("%q, want %q", results, want)
	}
	if want := []string{"one with names", "bad", "two with names"}; !slices.Equal(b.got, want) || b.headers[0].Get("X-Scope") != "team" || b.headers[0].Get(HopsHeader) != "3" {
		t.Errorf("%q %v", b.got, b.headers[0])
	}
}

// TestRetry has a server fail in the ways after which a message is sent again, and in those after which it is not.
func TestRetry(t *testing.T) {
	status := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "no \x1b[31mroom")
	rejected := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
		protowire.AppendString(protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3), 2, protowire.BytesType), "too old"))
	for name, c := range map[string]struct {
		answers []answer
		result  string
		tries   int
	}{
		"at once":        {[]answer{{status: 200}}, Sent, 1},
		"busy":           {[]answer{{status: 429}, {status: 503}, {status: 502}, {status: 504}, {status: 202}}, Sent, 5},
		"refused":        {[]answer{{status: 400, body: status}}, Refused, 1},
		"its failure":    {[]answer{{status: 500}}, Refused, 1},
		"elsewhere":      {[]answer{{status: 307}}, Refused, 1},
		"a part":         {[]answer{{status: 200, body: rejected}}, Partial, 1},
		"a large answer": {[]answer{{status: 200, body: make([]byte, maxAnswer+1)}}, Refused, 1},
		"a poor answer":  {[]answer{{status: 200, body: []byte("\x0a\xff\xff")}}, Sent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, c.answers...)
			results, pauses := run(t, forwarder(t, b), "message")
			if !slices.Equal(results, []string{c.result}) || len(b.got) != c.tries || len(pauses) != c.tries-1 {
				t.Errorf("%q after %d tries with pauses %v, want %q after %d", results, len(b.got), pauses, c.result, c.tries)
			}
		})
	}
	if _, text := partial(rejected); text != "too old" {
		t.Errorf("%q", text)
	}
	if err := answerError(&http.Response{Status: "400 Bad Request"}, status); strings.ContainsRune(err.Error(), '\x1b') || !strings.Contains(err.Error(), "room") {
		t.Errorf("%q", err)
	}
}

func TestPauses(t *testing.T) {
	b := newBackend(t, answer{status: 503}, answer{status: 503, after: "7"}, answer{status: 503}, answer{status: 503, after: "99999"}, answer{status: 200})
	_, pauses := run(t, forwarder(t, b), "message")
	if len(pauses) != 4 || pauses[0] > time.Second || pauses[1] != 7*time.Second || pauses[2] < 2*time.Second || pauses[3] != longestAfter {
		t.Errorf("%v", pauses)
	}
	now := time.Now().Truncate(time.Second)
	if d := retryAfter(now.Add(time.Minute).UTC().Format(http.TimeFormat), now); d != time.Minute {
		t.Errorf("a date: %v", d)
	}
	for _, text := range []string{"", "soon", "-5", now.Add(-time.Hour).UTC().Format(http.TimeFormat)} {
		if d := retryAfter(text, now); d != 0 {
			t.Errorf("%q: %v", text, d)
		}
	}
}

// TestGiveUp drops a message that cannot be sent, and goes on with the next.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		f := &Forwarder{URL: "http://backend" + Path, Senders: 1, GiveUp: time.Minute}
		var results []string
		f.OnResult = func(r string) { results = append(results, r) }
		f.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(start))
			if time.Since(start) < time.Minute {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})}
		f.Add([]byte("one"), "", 2)
		f.Add([]byte("two"), "", 2)
		f.Close()
		f.Run(t.Context())
		if !slices.Equal(results, []string{Dropped, Sent}) || len(sent) > 15 {
			t.Errorf("%q at %v", results, sent)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFull has a queue take so many bytes, those that are being sent counted, and end with its context.
func TestFull(t *testing.T) {
	blocked := make(chan struct{})
	f := &Forwarder{URL: "http://backend" + Path, MaxQueue: 10, Senders: 2}
	f.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		blocked <- struct{}{}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
	var mu sync.Mutex
	var results []string
	f.OnResult = func(r string) { mu.Lock(); defer mu.Unlock(); results = append(results, r) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	for _, m := range []string{"1234", "5678"} {
		if err := f.Add([]byte(m), m, 2); err != nil {
			t.Fatal(err)
		}
	}
	<-blocked
	<-blocked
	if err := f.Add([]byte("90x"), "", 2); !errors.Is(err, ErrFull) || f.Queued() != 8 {
		t.Errorf("%v, %d bytes", err, f.Queued())
	}
	if err := f.Add([]byte("90"), "", 2); err != nil {
		t.Errorf("what fits: %v", err)
	}
	cancel()
	<-done
	if len(results) != 2 || results[0] != Dropped {
		t.Errorf("%q", results)
	}
	f.Close()
	if err := f.Add(nil, "", 0); !errors.Is(err, ErrFull) {
		t.Errorf("a queue that is closed takes more: %v", err)
	}
	large := &Forwarder{MaxQueue: 10}
	if err := large.Add(make([]byte, 11), "", 0); err != nil {
		t.Errorf("a message that is alone: %v", err)
	}
}

// TestFullOfOne has clients fill the queue, of which each leaves as much as it has to others.
func TestFullOfOne(t *testing.T) {
	f := &Forwarder{MaxQueue: 100}
	taken := map[string]int{}
	for _, client := range []string{"a", "b", "c"} {
		for f.Add(make([]byte, 5), client, 0) == nil {
			taken[client] += 5
		}
	}
	if taken["a"] != 50 || taken["b"] != 25 || taken["c"] != 15 {
		t.Errorf("%v bytes of 100", taken)
	}
	if err := f.Add(make([]byte, 10), "d", 0); err != nil {
		t.Errorf("of another one: %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:4318": "http://h:4318" + Path, "https://h/": "https://h" + Path, "http://h/otlp": "http://h/otlp" + Path, "http://h" + Path: "http://h" + Path,
		"h:4318": "", "ftp://h": "", "http://": "", "http://h?x=1": "", "": "",
	} {
		got, err := ParseURL(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
	}
}
