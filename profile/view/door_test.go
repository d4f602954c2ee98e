package view

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

var somewhere = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}

// knock asks d for a path of the machine, with header fields in pairs.
func knock(d *door, path string, header ...string) *http.Response {
	r := httptest.NewRequest("GET", "http://127.0.0.1:8080"+path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("inside")) })).ServeHTTP(w, r)
	return w.Result()
}

// TestEntrance follows the key to the cookie and the pages.
func TestEntrance(t *testing.T) {
	d := newDoor(somewhere)
	if !strings.HasPrefix(d.url(somewhere, "key", d.key), "http://127.0.0.1:8080"+d.path+"?key=") {
		t.Errorf("the URL is %s", d.url(somewhere, "key", d.key))
	}
	resp := knock(d, d.path+"?key="+d.key)
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != d.path {
		t.Errorf("status %d, leads to %q", resp.StatusCode, to)
	}
	cookies := resp.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies %v", cookies)
	}
	c := cookies[0]
	if c.Path != d.path || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || !strings.HasSuffix(c.Name, "8080") {
		t.Errorf("the cookie is %q", resp.Header.Get("Set-Cookie"))
	}
	if strings.Contains(resp.Header.Get("Set-Cookie")+resp.Header.Get("Location"), d.key) {
		t.Error("the key is in the answer")
	}
	if resp := knock(d, d.path+"top", "Cookie", c.Name+"="+c.Value); resp.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: status %d", resp.StatusCode)
	}
	if resp := knock(d, d.path+"top", "Cookie", c.Name+"=theirs; "+c.Name+"="+c.Value); resp.StatusCode != http.StatusOK {
		t.Errorf("with a cookie of another port as well: status %d", resp.StatusCode)
	}
}

// TestKeyOpensTheEntranceOnly wants no key in the URLs of pages.
func TestKeyOpensTheEntranceOnly(t *testing.T) {
	d := newDoor(somewhere)
	for _, path := range []string{
		d.path + "top?key=" + d.key, "/?key=" + d.key, d.path + "?key=" + d.key[1:], d.path + "?key=" + d.session,
		d.path + "?ticket=" + d.key, d.path + "?key=&key=" + d.key, strings.TrimSuffix(d.path, "/") + "?key=" + d.key,
	} {
		if resp := knock(d, path); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) > 0 {
			t.Errorf("%s: status %d, cookies %v", path, resp.StatusCode, resp.Cookies())
		}
	}
}

// TestEntranceFromAnotherSite clicks the URL in a page: the browser sends no cookie of
// SameSite=Strict when it is redirected then.
func TestEntranceFromAnotherSite(t *testing.T) {
	d := newDoor(somewhere)
	resp := knock(d, d.path+"?key="+d.key, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Errorf("status %d, cookies %v", resp.StatusCode, resp.Cookies())
	}
	var body strings.Builder
	resp.Write(&body)
	if !strings.Contains(body.String(), `content="0;url=`+d.path+`"`) || strings.Contains(body.String(), d.key) {
		t.Errorf("the page does not lead on:\n%s", &body)
	}
}

// TestTicket wants it to be good for the same user, once.
func TestTicket(t *testing.T) {
	d := newDoor(somewhere)
	own := false
	d.isOwn = func(*http.Request) bool { return own }
	for i, want := range []int{http.StatusForbidden, http.StatusForbidden, http.StatusSeeOther, http.StatusForbidden} {
		own = i >= 2
		if resp := knock(d, d.path+"?ticket="+d.ticket); resp.StatusCode != want {
			t.Errorf("attempt %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
}

// TestDoorsDiffer wants nothing of one door to open another.
func TestDoorsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		d := newDoor(somewhere)
		for _, word := range []string{d.path, d.key, d.session, d.ticket} {
			if seen[word] || len(word) < 13 {
				t.Fatalf("%q is not random", word)
			}
			seen[word] = true
		}
	}
}

// TestOwnPeer asks the kernel about both ends of a connection.
func TestOwnPeer(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		own := make(chan bool, 1)
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { own <- ownPeer(r) })}
		l, err := listen(network)
		if err != nil {
			t.Logf("%s: %v", network, err) // no IPv6
			continue
		}
		go server.Serve(l)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !<-own {
			t.Errorf("%s: the connection is taken for that of another user", network)
		}
		server.Close()
	}
	if ownPeer(httptest.NewRequest("GET", "/", nil)) {
		t.Error("a request without a connection is taken for the user's")
	}
}

func TestSocketAddr(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
	} {
		if got := socketAddr(in); got != netip.MustParseAddrPort(want) {
			t.Errorf("%s is %v, want %s", in, got, want)
		}
	}
	for _, in := range []string{"", ":", "zz:1F90", "01:1F90", "0100007F", "0100007F:zz", "0100007F0100007F:1F90"} {
		if got := socketAddr(in); got.IsValid() {
			t.Errorf("%q is %v", in, got)
		}
	}
}

// closable is a connection that knows whether it was closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// TestGuests wants a new connection to take the place of the oldest that has not shown the key.
func TestGuests(t *testing.T) {
	g := &guests{most: 3}
	var came []*closable
	connect := func(hasKey bool) {
		c := new(closable)
		came = append(came, c)
		if ctx := g.welcome(t.Context(), c); hasKey {
			know(httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		}
	}
	check := func(when, want string) {
		t.Helper()
		var open strings.Builder
		for i, c := range came {
			if !c.closed {
				fmt.Fprintf(&open, " %d", i)
			}
		}
		if open.String() != want {
			t.Errorf("%s:%s are open, want%s", when, &open, want)
		}
	}
	connect(false)
	connect(true)
	connect(false)
	check("three", " 0 1 2")
	connect(true)
	check("a fourth", " 1 2 3")
	connect(true)
	check("a fifth", " 1 3 4")
	connect(false)
	check("a sixth while all others have the key", " 1 3 4")
	g.changed(came[1], http.StateActive)
	g.changed(came[1], http.StateClosed)
	g.changed(came[0], http.StateClosed) // again
	came[1].closed = true
	connect(false)
	check("a place is free", " 3 4 6")
	know(httptest.NewRequest("GET", "/", nil)) // of no connection
}
