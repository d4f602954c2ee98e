package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/columns"
)

// TestSilentServers asks servers that take nothing, answer nothing, or answer for ever. A request ends
// then, and is not repeated.
func TestSilentServers(t *testing.T) {
	var requests atomic.Int32
	done := make(chan struct{})
	slow := func(status int, piece string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			for {
				io.WriteString(w, piece)
				w.(http.Flusher).Flush()
				select {
				case <-done:
					return
				case <-r.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
		}
	}
	id, err := buildid.Parse(strings.Repeat("ab", 20))
	if err != nil {
		t.Fatal(err)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			io.Copy(io.Discard, r.Body)
			select {
			case <-done:
			case <-r.Context().Done():
			}
		},
		"an answer byte by byte":  slow(200, " "),
		"a failure byte by byte":  slow(400, " "),
		"columns without an end":  slow(200, "\x0a\x00"),
		"a list without an end":   slow(200, "[ "),
		"a failure that may pass": slow(503, " "),
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			s := httptest.NewServer(handler)
			defer s.Close()
			c := &Client{URL: s.URL, Patience: 50 * time.Millisecond, Retries: 1}
			if _, err := c.Plan(t.Context(), make([]api.PlanFile, 1)); err == nil {
				t.Error("a plan")
			}
			if n := requests.Load(); n != 1 && name != "a failure that may pass" {
				t.Errorf("%d requests", n)
			}
			if _, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{{ID: id.String(), Addresses: []uint64{1}}}}); err == nil {
				t.Error("symbols")
			}
		})
	}
	close(done)

	// A server that takes a connection and nothing of what is sent.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &Client{URL: "http://" + l.Addr().String(), Patience: 100 * time.Millisecond}
	f := &File{PlanFile: api.PlanFile{ID: id, SHA256: strings.Repeat("0", 64), Size: api.MaxChunk}, Content: zeros{}}
	if _, err := c.Send(context.Background(), f, 0, nil); !errors.Is(err, errSilent) {
		t.Errorf("a file: %v", err)
	}
}

// TestRetryAfter wants a request to be repeated when the server says, and not at all if that is far away.
func TestRetryAfter(t *testing.T) {
	var after atomic.Value
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			fmt.Fprint(w, `{"files":[{"action":"skip"}]}`)
			return
		}
		w.Header().Set("Retry-After", after.Load().(string))
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	var pauses []time.Duration
	c := &Client{URL: s.URL, OnRetry: func(err error, pause time.Duration) {
		if err != nil {
			pauses = append(pauses, pause)
		}
	}}
	after.Store("2")
	start := time.Now()
	if _, err := c.Plan(t.Context(), make([]api.PlanFile, 1)); err != nil || time.Since(start) < 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if !slices.Equal(pauses, []time.Duration{2 * time.Second}) {
		t.Errorf("pauses of %v", pauses)
	}
	after.Store("3600")
	requests.Store(0)
	var refused *Error
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.Plan(ctx, make([]api.PlanFile, 1)); !errors.As(err, &refused) || refused.After != time.Hour || requests.Load() != 1 {
		t.Errorf("%v, %d requests", err, requests.Load())
	}
}

// TestTLSErrors asks servers by the wrong protocol, and one whose certificate nobody vouches for: the message says what to
// do, and the request is made once, as the next one would fail, too.
func TestTLSErrors(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	picky := httptest.NewUnstartedServer(http.NotFoundHandler())
	picky.Config.ErrorLog = log.New(io.Discard, "", 0)
	picky.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	picky.StartTLS()
	defer picky.Close()
	for _, one := range []struct {
		url, want string
		http      *http.Client
	}{
		{"https" + strings.TrimPrefix(plain.URL, "http"), "HTTP response to HTTPS client", nil},
		{"http" + strings.TrimPrefix(secure.URL, "https"), "the server wants TLS: its URL begins with https://", nil},
		{secure.URL, "certificate signed by unknown authority", nil},
		{picky.URL, "certificate required", picky.Client()},
	} {
		c := &Client{URL: one.url, HTTP: one.http, OnRetry: func(err error, _ time.Duration) {
			// In TLS 1.3 the request is on its way before the server refuses the client, and may break off first.
			if one.http == nil || strings.Contains(err.Error(), one.want) {
				t.Errorf("%s: again after %v", one.url, err)
			}
		}}
		if _, err := c.Plan(t.Context(), make([]api.PlanFile, 1)); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, want %s", one.url, err, one.want)
		}
	}
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }
