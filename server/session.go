package server

import (
	"crypto/rand"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"hallmark/web"
)

// sessions are browsers that showed a token. A browser keeps the name of its session in a cookie, and not the token:
// it sends cookies to all ports of a host, of which others may serve some. A session ends with its token. Each
// server has its own.
type sessions struct {
	mu  sync.Mutex
	all map[string]session // by the hash of the cookie
}

type session struct {
	token   string // its hash
	expires time.Time
}

// Bounds of sessions.
const (
	sessionTime   = 12 * time.Hour
	maxSessions   = 4096
	maxOfOneToken = 64
	maxLoginForm  = 8 << 10 // bytes
)

// begin returns the cookie of a new session of a token.
func (s *sessions) begin(token string, now time.Time) string {
	name := rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]session{}
	}
	own, oldest, oldestOwn := 0, "", ""
	for key, one := range s.all {
		if now.After(one.expires) {
			delete(s.all, key)
			continue
		}
		if oldest == "" || one.expires.Before(s.all[oldest].expires) {
			oldest = key
		}
		if one.token == token {
			own++
			if oldestOwn == "" || one.expires.Before(s.all[oldestOwn].expires) {
				oldestOwn = key
			}
		}
	}
	switch {
	case own >= maxOfOneToken:
		delete(s.all, oldestOwn)
	case len(s.all) >= maxSessions:
		delete(s.all, oldest)
	}
	s.all[hashToken(name)] = session{token, now.Add(sessionTime)}
	return name
}

// token returns the hash of the token of a session, "" where there is none.
func (s *sessions) token(cookie string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[hashToken(cookie)]
	if !ok || now.After(one.expires) {
		return ""
	}
	return one.token
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, hashToken(cookie))
}

// isTLS reports whether a browser speaks TLS, with this server or with a proxy before it.
func isTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// cookieName returns the name of the cookie. Browsers take the one of TLS from TLS alone.
func cookieName(r *http.Request) string {
	if isTLS(r) {
		return "__Host-hallmark"
	}
	return "hallmark"
}

func cookieOf(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: isTLS(r), SameSite: http.SameSiteStrictMode}
}

// isForeign reports whether a page of another site, or of another port of this host, had the browser send a request.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

// session returns who a browser is that has a cookie. With a cookie nothing can be changed.
func (g *guard) session(r *http.Request) (caller, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || isForeign(r) {
		return caller{}, false
	}
	for _, c := range r.CookiesNamed(cookieName(r)) { // others of the host can set some
		if hash := g.sessions.token(c.Value, time.Now()); hash != "" {
			if who, ok := g.known(hash); ok {
				return who, true
			}
		}
	}
	return caller{}, false
}

// nextOf returns where a browser goes after it has logged in: to a page of this server alone.
func nextOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") || len(text) > 4096 || len(u.Path) > 1 && (u.Path[1] == '/' || u.Path[1] == '\\') {
		return "/"
	}
	clean := url.URL{Path: u.Path, RawQuery: u.RawQuery, Fragment: u.Fragment}
	return clean.String()
}

// loginPolicy is web.Policy, with a form that is sent to this server.
var loginPolicy = strings.Replace(web.Policy, "form-action 'none'", "form-action 'self'", 1)

var loginPage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in · Hallmark</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/app/css/base.css">
<link rel="stylesheet" href="/app/css/site.css">
<script type="module" src="/app/js/theme.js"></script>
</head>
<body>
<header id="top"><h1>Hallmark</h1></header>
<nav id="tabs" aria-label="Pages"></nav>
<main id="main">
<form id="login" method="post" action="/login">
<h2>Log in</h2>
<p>This server wants a token, which 'hallmark serve token' makes. The browser does not keep it.</p>
{{if .Wrong}}<p class="error" role="alert">The token is unknown or has expired.</p>{{end}}
<label>Token <input type="password" name="token" autocomplete="off" required autofocus></label>
<input type="hidden" name="next" value="{{.Next}}">
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
`))

// errorPage says why there is no page, in the form of the others.
var errorPage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} · Hallmark</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/app/css/base.css">
<link rel="stylesheet" href="/app/css/site.css">
<script type="module" src="/app/js/theme.js"></script>
</head>
<body>
<header id="top"><h1>Hallmark</h1></header>
<nav id="tabs" aria-label="Pages"><a href="/">Binaries</a><a href="/#view=profiles">Profiles</a></nav>
<main id="main">
<div id="view"><h2>{{.Title}}</h2><p class="error" role="alert">{{.Text}}</p></div>
</main>
</body>
</html>
`))

var onwardPage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={{.}}">
<title>Hallmark</title>
<p><a href="{{.}}">To the page</a>
`))

// page sets the headers of a page that the server writes itself.
func page(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", loginPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(status)
}

// login shows the form for a token.
func (s *Server) login(w *exchange, r *http.Request, _ caller) error {
	page(w, http.StatusOK)
	return ignoreGone(loginPage.Execute(w, map[string]any{"Next": nextOf(r.URL.Query().Get("next"))}))
}

// enter begins a session of the token in the form.
func (s *Server) enter(w *exchange, r *http.Request, _ caller) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginForm)
	if err := r.ParseForm(); err != nil {
		return fail(http.StatusBadRequest, "the form cannot be read")
	}
	next := nextOf(r.PostForm.Get("next"))
	if s.Tokens != "" {
		hash := hashToken(strings.TrimSpace(r.PostForm.Get("token")))
		if _, ok := s.guard.known(hash); !ok {
			page(w, http.StatusUnauthorized)
			return ignoreGone(loginPage.Execute(w, map[string]any{"Next": next, "Wrong": true}))
		}
		http.SetCookie(w, cookieOf(r, s.guard.sessions.begin(hash, time.Now()), int(sessionTime.Seconds())))
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", next)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// leave ends a session.
func (s *Server) leave(w *exchange, r *http.Request, _ caller) error {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		s.guard.sessions.end(c.Value)
	}
	http.SetCookie(w, cookieOf(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// isNavigation reports whether a browser asks for a page to show it.
func isNavigation(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodGet && (mode == "navigate" || mode == "" && strings.Contains(r.Header.Get("Accept"), "text/html"))
}

// welcome answers a browser that asks for a page without a token: with the form, or with a page that asks again where
// another site led here. Browsers send no cookie of SameSite=Strict then.
func (s *Server) welcome(w http.ResponseWriter, r *http.Request) {
	if isForeign(r) {
		page(w, http.StatusOK)
		_ = onwardPage.Execute(w, r.URL.RequestURI()) // a client that is gone learns nothing
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", "/login?"+url.Values{"next": {r.URL.RequestURI()}}.Encode())
	w.WriteHeader(http.StatusSeeOther)
}
