package debuginfod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// maxRedirects is how often a request may be sent elsewhere.
const maxRedirects = 10

// redirect decides about a request that an answer leads to, for http.Client. Client.Header may
// hold secrets of one server, and the URL too: another server gets neither, nor does this one
// without encryption.
func (c *Client) redirect(r *http.Request, via []*http.Request) error {
	first, last := via[0].URL, via[len(via)-1].URL
	switch {
	case len(via) >= maxRedirects:
		return &lastingError{fmt.Errorf("it redirects more than %d times", maxRedirects-1)}
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return &lastingError{fmt.Errorf("it redirects to the scheme %q", r.URL.Scheme)}
	case isOfSource(r.Context()) && !sameServer(first, r.URL):
		return &lastingError{fmt.Errorf("it redirects a source to %s", r.URL.Host)}
	case c.SameHost && !sameServer(first, r.URL) && !slices.Contains(c.RedirectHosts, r.URL.Host):
		return &lastingError{fmt.Errorf("it redirects to %s, which is not allowed", r.URL.Host)}
	case last.Scheme == "https" && r.URL.Scheme == "http" && len(c.Header) > 0:
		return &lastingError{errors.New("it redirects headers from https to http")}
	}
	for _, one := range append([]*http.Request{r}, via...) {
		if one.URL.Scheme != first.Scheme || one.URL.Host != first.Host {
			c.forgetSecrets(r)
			break
		}
	}
	return nil
}

// sameServer reports whether a URL is one of a server, or of the same one with encryption. A source has no identity: a
// server could have anything passed on as one that is in reach of the client, and not of those who ask it.
func sameServer(server, u *url.URL) bool {
	return u.Scheme == server.Scheme && u.Host == server.Host ||
		u.Scheme == "https" && server.Scheme == "http" && u.Hostname() == server.Hostname() && u.Port() == "" && server.Port() == ""
}

// sourceKey is where the context of a request says that it is for a source.
type sourceKey struct{}

func isOfSource(ctx context.Context) bool { return ctx.Value(sourceKey{}) != nil }

// forgetSecrets leaves out of a request what is for the first server alone.
func (c *Client) forgetSecrets(r *http.Request) {
	for name := range c.Header {
		delete(r.Header, name)
	}
	r.Header.Del("Referer")
	c.addOwn(r)
}
