package view

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"hallmark/internal/plaintext"
)

// A door lets those in who have the URL that Serve made. Every local user can connect to
// the port, and every page in the user's browser can send requests to it.
//
//   - The key opens the door: the entrance, the one page that takes it, gives the browser a
//     cookie and leads to a URL without the key.
//   - Browsers send cookies to all ports of a host, and another user may serve pages on one of
//     them. So the path is random too: the cookie is sent only to what is below it. SameSite
//     keeps the cookie from requests that pages of other sites make.
//   - The user's browser gets a ticket in place of the key, because every local user can read
//     the command line of a process. The entrance takes it from a process of the same user,
//     and once.
//
// Requests that pages of other ports make the browser send are refused by Sec-Fetch-Site, which they
// cannot set, and host names other than this machine's, which may be made to lead here later
// (DNS rebinding), by Host.
type door struct {
	path    string // of all pages, with a slash at both ends
	key     string // of the URL that is shown
	session string // value of the cookie
	cookie  string // name of the cookie
	ticket  string // of the URL that the browser is started with
	isOwn   func(*http.Request) bool
	used    atomic.Bool // the ticket was
}

func newDoor(l net.Addr) *door {
	return &door{
		path:    "/" + rand.Text()[:13] + "/", // 65 bits; rand.Text has 130
		key:     rand.Text(),
		session: rand.Text(),
		ticket:  rand.Text(),
		cookie:  "hallmark-view-" + strconv.Itoa(int(l.(*net.TCPAddr).AddrPort().Port())),
		isOwn:   ownPeer,
	}
}

// url returns the URL that opens the door at l by one of its words.
func (d *door) url(l net.Addr, name, word string) string {
	u := url.URL{Scheme: "http", Host: l.String(), Path: d.path, RawQuery: url.Values{name: {word}}.Encode()}
	return u.String()
}

// guard serves next to those who came through the door.
func (d *door) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		query := plainQuery(r)
		switch {
		case !isLoopback(r.Host):
			http.Error(w, "This page is for the machine that it runs on.", http.StatusForbidden)
		case r.URL.Path == d.path && r.Method == http.MethodGet && d.opens(r, query):
			d.enter(w, r)
		case !d.isInside(r):
			http.Error(w, "This page is for the user who started 'hallmark view'. "+
				"To get in, open the whole URL that it printed, with the key.", http.StatusForbidden)
		case isForeign(r):
			http.Error(w, "Another site asked for this page. To get in, open the whole URL that "+
				"'hallmark view' printed.", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Nothing can be changed here.", http.StatusMethodNotAllowed)
		default:
			know(r)
			next.ServeHTTP(w, r)
		}
	})
}

// plainQuery returns what a request asks for, and makes it plain text: pages and errors quote
// it, and a terminal may get them.
func plainQuery(r *http.Request) url.Values {
	query := r.URL.Query()
	for _, values := range query {
		for i := range values {
			values[i] = plaintext.Line(values[i])
		}
	}
	r.URL.RawQuery = query.Encode()
	return query
}

// opens reports whether a request for the entrance has the key, or the ticket that is
// still good.
func (d *door) opens(r *http.Request, query url.Values) bool {
	if isSame(query.Get("key"), d.key) {
		return true
	}
	return isSame(query.Get("ticket"), d.ticket) && d.isOwn(r) && d.used.CompareAndSwap(false, true)
}

// enter gives a browser the cookie and leads it to the pages.
//
// A browser that comes by a link on another page does not send the cookie when it is
// redirected, as the other page is still the one that asked. So it gets a page that asks.
func (d *door) enter(w http.ResponseWriter, r *http.Request) {
	know(r)
	http.SetCookie(w, &http.Cookie{
		Name: d.cookie, Value: d.session, Path: d.path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	if !isForeign(r) {
		http.Redirect(w, r, d.path, http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	onward.Execute(w, d.path)
}

var onward = template.Must(template.New("").Parse(`<!DOCTYPE html>
<meta http-equiv="refresh" content="0;url={{.}}">
<title>hallmark view</title>
<p><a href="{{.}}">To the profile</a>
`))

// isInside reports whether a request has the cookie. It may have several of that name:
// other ports can set them.
func (d *door) isInside(r *http.Request) bool {
	for _, c := range r.CookiesNamed(d.cookie) {
		if isSame(c.Value, d.session) {
			return true
		}
	}
	return false
}

// isSame compares in a time that does not depend on where the words differ.
func isSame(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// isForeign reports whether a page of another site, or of another port, had the browser
// send the request.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		origin := r.Header.Get("Origin")
		return origin != "" && origin != "http://"+r.Host
	}
	return true
}

// isLoopback reports whether the value of a Host header means this machine.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// secure sets the headers of every answer: the pages load nothing, send nothing, are shown
// in no frame of another page, leave no copy in a cache, and no URL of theirs leaves them.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy("'none'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// policy is a Content-Security-Policy that allows scripts from one source.
func policy(scripts string) string {
	return fmt.Sprintf("default-src 'none'; script-src %s; style-src 'unsafe-inline'; img-src data:; "+
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'", scripts)
}
