package debuginfod

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// server is what is known of a server's health.
type server struct {
	url  string
	told sync.Once // Client.Warn of its first failure

	mu       sync.Mutex
	failures int // in a row
	until    time.Time
	err      error
}

// How long a server that failed is left alone: this long after the first time,
// doubled with each failure that follows.
const (
	firstRest   = 30 * time.Second
	longestRest = 10 * time.Minute
)

// down returns why the server is not asked now, nil if it is.
func (s *server) down(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return fmt.Errorf("not asked, because it failed a moment ago: %w", s.err)
	}
	return nil
}

func (s *server) failed(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return // others failed at the same time: that is one failure
	}
	s.until = now.Add(min(longestRest, firstRest<<min(s.failures, 10)))
	s.err = err
	s.failures++
}

func (s *server) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.until = 0, time.Time{}
}

// backoff returns how long to wait before a request is repeated: about 250 ms,
// doubled each time, and not in step with others.
func backoff(try int) time.Duration {
	d := 250 * time.Millisecond << min(try, 6)
	return d/2 + rand.N(d)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	defaultTimeout = 15 * time.Second
	// connectTimeout is short: a server that is there accepts at once.
	connectTimeout = 5 * time.Second
)

func newHTTP(timeout time.Duration) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: min(connectTimeout, timeout)}).DialContext
	t.ResponseHeaderTimeout = timeout
	t.MaxIdleConnsPerHost = maxDownloads
	return &http.Client{Transport: t}
}

// lastingError is one that the same request would bring again, while others may succeed.
type lastingError struct{ error }

func (e *lastingError) Unwrap() error { return e.error }

// timedOut reports whether a server was silent: asking it again takes as long again.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// isUnreachable reports whether there was no connection.
func isUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// get downloads url into the cache.
func (c *Client) get(ctx context.Context, url string, k key) (err error) {
	if c.MaxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.MaxTime, &lastingError{fmt.Errorf("it takes longer than %v", c.MaxTime)})
		defer cancel()
	}
	if k.file.isSource() {
		ctx = context.WithValue(ctx, sourceKey{}, true)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	response, err := c.request(ctx, url)
	if err != nil {
		return errors.Join(causeOf(ctx), err)
	}
	defer response.Body.Close()
	if err := status(response); err != nil {
		return err
	}
	if err := c.receive(ctx, cancel, response, k); err != nil {
		return errors.Join(causeOf(ctx), err)
	}
	return nil
}

// causeOf returns why ctx was ended from within.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return cause
	}
	return nil
}

func (c *Client) request(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, &lastingError{withoutURL(err)}
	}
	for name, values := range c.Header {
		request.Header[name] = values
	}
	if f, _ := ctx.Value(forwardedKey{}).(string); f != "" {
		request.Header.Set("X-Forwarded-For", f)
	}
	c.addOwn(request)
	response, err := c.http.Do(request)
	return response, withoutURL(err)
}

// withoutURL returns an error without the URL of the request, which may have credentials.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// addOwn sets the headers that every server gets.
func (c *Client) addOwn(r *http.Request) {
	r.Header.Set("User-Agent", "hallmark")
	r.Header.Set("Accept-Encoding", "gzip")
	if c.MaxTime > 0 {
		r.Header.Set("X-DEBUGINFOD-MAXTIME", strconv.Itoa(int(c.MaxTime.Seconds())))
	}
	if c.MaxSize > 0 {
		r.Header.Set("X-DEBUGINFOD-MAXSIZE", strconv.FormatInt(c.MaxSize, 10))
	}
}

// status turns an answer that is no file into an error.
func status(r *http.Response) error {
	switch {
	case r.StatusCode == http.StatusOK:
		return nil
	case r.StatusCode == http.StatusNotFound, r.StatusCode == http.StatusGone:
		return ErrNotFound
	case r.StatusCode >= 500, r.StatusCode == http.StatusTooManyRequests, r.StatusCode == http.StatusRequestTimeout:
		return errors.New(r.Status)
	}
	return &lastingError{errors.New(r.Status)}
}
