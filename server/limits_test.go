package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// limited starts a server with tokens and limits, whose clock the test moves.
func limited(t *testing.T, l Limits) (base string, clock *atomic.Int64, auth func(name string) []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	secrets := map[string]string{}
	var tokens []Token
	for _, name := range []string{"a", "b", "admin"} {
		roles := []Role{Read, UploadCI}
		if name == "admin" {
			roles = []Role{Admin}
		}
		token, secret := NewToken(name, roles, time.Time{})
		tokens, secrets[name] = append(tokens, token), secret
	}
	if err := WriteTokens(file, tokens); err != nil {
		t.Fatal(err)
	}
	clock = new(atomic.Int64)
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	_, base = start(t, func(c *Config) {
		c.Tokens, c.Limits = file, l
		c.Store.Now = func() time.Time { return noon.Add(time.Duration(clock.Load())) }
	})
	return base, clock, func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
}

// wantRetry wants an answer that asks the client to come again in so many seconds.
func wantRetry(t *testing.T, a answered, after int) {
	t.Helper()
	a.want(t, 429)
	if got := a.Header.Get("Retry-After"); got != strconv.Itoa(after) {
		t.Errorf("Retry-After: %s, want %d", got, after)
	}
}

func TestRequestLimit(t *testing.T) {
	base, clock, auth := limited(t, Limits{Requests: 2})
	get := func(name string) answered { return ask(t, "GET", base+"/", nil, auth(name)...) }
	for range 20 {
		get("a").want(t, 200)
	}
	wantRetry(t, get("a"), 1)
	get("b").want(t, 200)
	for range 30 {
		get("admin").want(t, 200)
	}
	ask(t, "GET", base+"/healthz", nil).want(t, 200)
	clock.Add(int64(time.Second))
	get("a").want(t, 200)
	get("a").want(t, 200)
	wantRetry(t, get("a"), 1)
	clock.Add(int64(time.Hour))
	for range 20 { // and no more for an hour of silence
		get("a").want(t, 200)
	}
	wantRetry(t, get("a"), 1)
	// Attempts at tokens are counted by address.
	for range 20 {
		ask(t, "GET", base+"/", nil, "Authorization", "Bearer nonsense").want(t, 401)
	}
	wantRetry(t, ask(t, "GET", base+"/", nil, "Authorization", "Bearer nonsense"), 1)
	if a := ask(t, "GET", base+"/metrics", nil, auth("admin")...); !bytes.Contains(a.body, []byte(`hallmark_limited_total{limit="requests"} 4`)) {
		t.Errorf("%s", a.body)
	}
}

func TestUploadLimit(t *testing.T) {
	p := program(t)
	size := int64(len(p.full))
	base, clock, auth := limited(t, Limits{UploadBytes: 2*size + 10})
	upload(t, base, p.full, "", auth("a")...).want(t, 201)
	upload(t, base, p.full, "", auth("a")...).want(t, 200)
	wantRetry(t, upload(t, base, p.full, "", auth("a")...), 12*3600)
	upload(t, base, p.full, "", auth("b")...).want(t, 201) // of another origin
	upload(t, base, p.full, "", auth("admin")...).want(t, 201)
	for range 3 {
		upload(t, base, p.full, "", auth("admin")...).want(t, 200)
	}
	// One that does not say how large it is ends where it is too large, in a part as in a whole.
	unknown := struct{ io.Reader }{bytes.NewReader(p.full)}
	wantRetry(t, ask(t, "PUT", base+"/v1/files/"+hashHex(p.full), unknown, auth("a")...), 12*3600)
	wantRetry(t, ask(t, "PUT", base+"/v1/uploads/"+hashHex(p.full)+"/0", bytes.NewReader(p.full), auth("a")...), 12*3600)
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil, auth("a")...).want(t, 200)
	// Several at once have one sum.
	clock.Add(int64(12 * time.Hour))
	upload(t, base, p.full, "", auth("a")...).want(t, 200)
	var all sync.WaitGroup
	var refused atomic.Int32
	for range 6 {
		all.Go(func() {
			if upload(t, base, p.full, "", auth("a")...).StatusCode == 429 {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if n := refused.Load(); n < 5 {
		t.Errorf("%d of 6 uploads were refused, where one fits", n)
	}
}

// TestUploadLimitOfForms counts an upload for what it is decompressed, and a source of 0 bytes for the entry that it makes.
func TestUploadLimitOfForms(t *testing.T) {
	p := program(t)
	base, _, auth := limited(t, Limits{UploadBytes: int64(len(p.full)) + 5*leastUpload})
	upload(t, base, p.full, "", auth("a")...).want(t, 201)
	source := func(i int) answered {
		return ask(t, "PUT", fmt.Sprintf("%s/v1/sources/%v?path=/%d.c", base, p.id, i), http.NoBody, auth("a")...)
	}
	for i := range 5 {
		source(i).want(t, 204)
	}
	wantRetry(t, source(5), 12*3600)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, len(p.full)+6*leastUpload))
	z.Close()
	wantRetry(t, ask(t, "PUT", base+"/v1/files/"+hashHex(p.full), &bomb, append(auth("b"), "Content-Encoding", "gzip")...), 12*3600)
}

// TestProxies believes a proxy, and nobody else, for whom it asks.
func TestProxies(t *testing.T) {
	s := new(Server)
	s.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct{ from, forwarded, want string }{
		{"10.1.2.3:5", "192.0.2.1", "address 192.0.2.1"},
		{"10.1.2.3:5", "192.0.2.7, 192.0.2.1", "address 192.0.2.1"},
		{"10.1.2.3:5", "192.0.2.1, 10.9.9.9", "address 192.0.2.1"},
		{"10.1.2.3:5", "2001:db8::1, [fd00::1]:80", "address 2001:db8::/64"},
		{"10.1.2.3:5", "", "address 10.1.2.3"},
		{"10.1.2.3:5", "nonsense", "address 10.1.2.3"},
		{"10.1.2.3:5", "192.0.2.1, nonsense", "address 10.1.2.3"},
		{"192.0.2.9:5", "192.0.2.1", "address 192.0.2.9"},
	} {
		r := &http.Request{RemoteAddr: c.from, Header: http.Header{"X-Forwarded-For": {c.forwarded}}}
		if got := s.clientOf(r, caller{}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestClients wants an address for each client, and a bound on their number.
func TestClients(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:1": "address 192.0.2.1", "[::ffff:192.0.2.1]:9": "address 192.0.2.1",
		"[2001:db8::1]:1": "address 2001:db8::/64", "[2001:db8::2%eth0]:1": "address 2001:db8::/64", "@": "address",
	} {
		if got := new(Server).clientOf(&http.Request{RemoteAddr: address}, caller{}); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	now := time.Unix(0, 0)
	m := &meter{Limits: Limits{Requests: 1, UploadBytes: 1}, now: func() time.Time { return now }}
	if err := m.upload("heavy", 1, true); err != nil {
		t.Fatal(err)
	}
	for i := range maxClients + 100 {
		if i == maxClients-1 {
			now = now.Add(time.Minute)
		}
		if err := m.request(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.clients) > maxClients || m.upload("heavy", 1, true) == nil {
		t.Errorf("%d clients, or one that uploaded is forgotten while others are idle", len(m.clients))
	}
	for i := range maxClients + 100 {
		_ = m.upload(fmt.Sprint("busy ", i), 1, true)
	}
	if len(m.clients) > maxClients {
		t.Errorf("%d clients", len(m.clients))
	}
}
