package debuginfod

import (
	"errors"
	"fmt"
	"net/http"
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

// forgetSecrets leaves out of a request what is for the first server alone.
func (c *Client) forgetSecrets(r *http.Request) {
	for name := range c.Header {
		delete(r.Header, name)
	}
	r.Header.Del("Referer")
	c.addOwn(r)
}
