package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hallmark/internal/certtest"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// TestCertificates has clients with certificates of several names and authorities ask, with tokens and without.
func TestCertificates(t *testing.T) {
	ours, others := certtest.NewAuthority(t), certtest.NewAuthority(t)
	agent, secret := NewToken("someone", []Role{Symbolize}, time.Time{})
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	if err := WriteTokens(tokens, []Token{
		agent,
		{Name: "old", Roles: []Role{Admin}, Certificate: "dns:old.example.org", Expires: time.Now().Add(-time.Hour)},
		{Name: "nodes", Roles: []Role{Read}, Certificate: "uri:spiffe://example.org/node"},
		{Name: "people", Roles: []Role{Symbolize}, Certificate: "email:a@example.org"},
		{Name: "hosts", Roles: []Role{Read}, Certificate: "dns:build.example.org"},
		{Name: "root", Roles: []Role{Admin}, Certificate: "cn:root"},
	}); err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}, Tokens: tokens})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s)
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Issue(t, x509.Certificate{DNSNames: []string{"localhost"}})}}
	srv.StartTLS()
	t.Cleanup(func() { srv.Close(); s.Store.Close(); blobs.Close() })

	get := func(authority *certtest.Authority, names x509.Certificate, header ...string) (int, string) {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{authority.Issue(t, names)}}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/buildid/00112233445566778899aabbccddeeff00112233/executable", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		var b strings.Builder
		if _, err := io.Copy(&b, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b.String()
	}
	node, err := url.Parse("spiffe://example.org/node")
	if err != nil {
		t.Fatal(err)
	}
	nodes := x509.Certificate{URIs: []*url.URL{node}}
	named := func(cn string) (c x509.Certificate) { c.Subject.CommonName = cn; return c }
	for name, c := range map[string]struct {
		authority *certtest.Authority
		names     x509.Certificate
		header    []string
		want      int
	}{
		"its URI":                        {ours, nodes, nil, 404},
		"its DNS name":                   {ours, x509.Certificate{DNSNames: []string{"x.example.org", "build.example.org"}}, nil, 404},
		"an administrator":               {ours, named("root"), nil, 404},
		"another role":                   {ours, x509.Certificate{EmailAddresses: []string{"a@example.org"}}, nil, 403},
		"an entry that has expired":      {ours, x509.Certificate{DNSNames: []string{"old.example.org"}}, nil, 401},
		"a name of another kind":         {ours, named("spiffe://example.org/node"), nil, 401},
		"a name with a kind in it":       {ours, named("uri:spiffe://example.org/node"), nil, 401},
		"another name":                   {ours, x509.Certificate{DNSNames: []string{"build.example.org.evil.example"}}, nil, 401},
		"no name":                        {ours, x509.Certificate{}, nil, 401},
		"another authority":              {others, nodes, nil, 0},
		"a token of another role":        {ours, nodes, []string{"Authorization", "Bearer " + secret}, 403},
		"a token that nobody has":        {ours, nodes, []string{"Authorization", "Bearer hallmark_none"}, 401},
		"sent by a page of another site": {ours, nodes, []string{"Sec-Fetch-Site", "cross-site"}, 401},
	} {
		if got, text := get(c.authority, c.names, c.header...); got != c.want {
			t.Errorf("%s: %d, want %d: %s", name, got, c.want, text)
		}
	}
	if _, text := get(ours, named("stranger")); !strings.Contains(text, "cn:stranger") {
		t.Errorf("the answer does not say which names were shown: %s", text)
	}
}

// TestTokensFile reads entries that mean nothing.
func TestTokensFile(t *testing.T) {
	for name, entry := range map[string]Token{
		"neither":      {Name: "x", Roles: []Role{Read}},
		"both":         {Name: "x", Roles: []Role{Read}, SHA256: strings.Repeat("0", 64), Certificate: "cn:x"},
		"no kind":      {Name: "x", Roles: []Role{Read}, Certificate: "example.org"},
		"unknown kind": {Name: "x", Roles: []Role{Read}, Certificate: "ip:127.0.0.1"},
		"no name":      {Name: "x", Roles: []Role{Read}, Certificate: "cn:"},
	} {
		file := filepath.Join(t.TempDir(), "tokens.json")
		if err := WriteTokens(file, []Token{entry}); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTokens(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestURIsAsTheyAre has certificates whose URIs are other ones than those that entries of tokens may have, and become them
// when they are parsed and written again.
func TestURIsAsTheyAre(t *testing.T) {
	authority := certtest.NewAuthority(t)
	for _, uri := range []string{"spiffe://example.org/node", "SPIFFE://example.org/node", "spiffe://example.org/node#", "spiffe://example.org/a b"} {
		name := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: uriTag, Bytes: []byte(uri)}
		value, err := asn1.Marshal([]asn1.RawValue{name})
		if err != nil {
			t.Fatal(err)
		}
		pair := authority.Issue(t, x509.Certificate{ExtraExtensions: []pkix.Extension{{Id: subjectAltName, Value: value}}})
		if got := namesOf(pair.Leaf); !slices.Contains(got, "uri:"+uri) || len(got) > 2 {
			t.Errorf("%q: %q", uri, got)
		}
	}
}
