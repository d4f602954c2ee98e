package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/blob/blobtest"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/server/store"
	"hallmark/web"
)

// numberedID returns an identity with a number in it, and the beginning of every thirtieth in common.
func numberedID(t testing.TB, i int) buildid.ID {
	t.Helper()
	id, err := buildid.Parse(fmt.Sprintf("%02x%038x", i%30, i))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// numbered is the manifest of an identity with a number.
func numbered(t testing.TB, i int) *store.Manifest {
	id := numberedID(t, i)
	return &store.Manifest{Version: 1, ID: id, Files: []store.File{{Object: hashHex([]byte(fmt.Sprint(i))), Facts: store.Facts{ID: id, Executable: true, Symbols: store.Functions},
		Origins: []store.Origin{{Trust: store.CI, Via: "push", Path: fmt.Sprintf("/usr/lib/dir%d/lib%d.so", i%7, i)}, {Trust: store.Agent, Via: "push", Path: fmt.Sprintf("/opt/lib%d.so", i)}}}}}
}

// putManifest puts a manifest into a store as a server without a catalogue does.
func putManifest(t testing.TB, blobs blob.Store, m *store.Manifest) {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text := m.ID.String()
	if _, err := blobs.PutIfAbsent(t.Context(), "id/gnu/"+text[:2]+"/"+text[2:]+"/manifest.json", bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

// inMemory returns a server that knows n identities of a store in memory.
func inMemory(t testing.TB, n int) (*Server, string) {
	t.Helper()
	blobs := &blobtest.Memory{}
	for i := range n {
		putManifest(t, blobs, numbered(t, i))
	}
	s := New(Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { srv.Close(); s.Store.Close() })
	return s, srv.URL
}

// TestSearch searches among 3 and among 30,000 binaries, page by page.
func TestSearch(t *testing.T) {
	search := func(base, query string) api.SearchAnswer {
		t.Helper()
		return read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search?"+query, nil).want(t, 200))
	}
	_, base := inMemory(t, 3)
	if a := search(base, ""); a.Total != 3 || len(a.Results) != 3 || !a.Complete || a.Results[0].Symbols != "functions" || len(a.Results[0].Names) != 2 {
		t.Errorf("%+v", a)
	}
	s, base := inMemory(t, 30000)
	for query, want := range map[string]int{
		"q=00000": 1000, "q=1D": 1000, "q=" + numberedID(t, 12345).String(): 1, "q=lib12345.so": 1, "q=%2Fopt%2F": 30000, "q=dir3": 4286, "q=LIB12345": 0, "q=nothing": 0,
	} {
		if a := search(base, query); a.Total != want || len(a.Results) != min(want, usualFound) {
			t.Errorf("%s: %d found, %d on the page, want %d", query, a.Total, len(a.Results), want)
		}
	}
	seen := map[string]bool{}
	for offset := 0; ; offset += 200 {
		a := search(base, fmt.Sprintf("q=dir3&limit=200&offset=%d", offset))
		for _, r := range a.Results {
			seen[r.ID.String()] = true
		}
		if len(a.Results) < 200 {
			break
		}
	}
	if len(seen) != 4286 {
		t.Errorf("the pages have %d identities", len(seen))
	}
	if c, err := s.Store.Collect(t.Context(), store.Collection{Retention: store.Retention{Age: time.Hour}}); err != nil || c.Removed != 30000 {
		t.Fatalf("%+v, %v", c, err)
	}
	if a := search(base, "q=lib12345.so"); a.Total != 0 || s.Store.Catalog().Len() != 0 {
		t.Errorf("one that is removed is found: %+v", a)
	}
	for _, bad := range []string{"limit=0", "offset=-1", "q=" + strings.Repeat("x", maxSearch+1)} {
		ask(t, "GET", base+"/v1/search?"+bad, nil).want(t, 400)
	}
}

func BenchmarkSearch(b *testing.B) {
	s, _ := inMemory(b, 30000)
	for b.Loop() {
		find(s.Store.Catalog(), "lib29999.so", 0, 50)
	}
}

// TestMissing counts what requests and profiles asked for, and no more than there is room for.
func TestMissing(t *testing.T) {
	s, base := start(t, withSymbols(t))
	id := numberedID(t, 1)
	for range 3 {
		ask(t, "GET", base+"/buildid/"+id.String()+"/executable", nil).want(t, 404)
	}
	p := program(t)
	k := post(t, base, pprofBytes(t, bareProfile(t, p)), "", 201)
	ask(t, "GET", base+k.URL+"/api/profile", nil).want(t, 200)
	list := read[api.MissingList](t, ask(t, "GET", base+"/v1/missing", nil).want(t, 200))
	if list.Total != 3 || list.Missing[0].ID != id || list.Missing[0].Count != 3 || list.Missing[1].Name != "/bin/prog" {
		t.Errorf("%+v", list)
	}
	upload(t, base, p.full, "").want(t, 201)
	if list := s.missing.list(); len(list) != 2 {
		t.Errorf("what has come is still missing: %+v", list)
	}
	for i := range 2 * maxAsked {
		s.missing.note("", numberedID(t, 100+i), "")
	}
	all := s.missing.list()
	if len(all) != maxAsked || all[0].ID != id {
		t.Errorf("%d identities, the first is %+v", len(all), all[0])
	}
	page := read[api.MissingList](t, ask(t, "GET", base+"/v1/missing?limit=10&offset=9995", nil).want(t, 200))
	if page.Total != maxAsked || len(page.Missing) != 5 {
		t.Errorf("%d of %d", len(page.Missing), page.Total)
	}
}

// TestBinaryPage asks for what the page of a binary shows.
func TestBinaryPage(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	a := read[api.Identity](t, ask(t, "GET", base+"/v1/identities/"+p.id.String()+"?sections=1", nil).want(t, 200))
	found := map[string]string{}
	for _, s := range a.Sections {
		if s.Bytes {
			found[s.Name] = s.Of
		}
	}
	if found[".text"] != "executable" || found[".debug_info"] != "debuginfo" || a.Symbols != "lines" {
		t.Errorf("%v %s", found, a.Symbols)
	}
	if a := read[api.Identity](t, ask(t, "GET", base+"/v1/identities/"+p.id.String(), nil).want(t, 200)); a.Sections != nil {
		t.Error("sections that nobody asked for")
	}
	h := read[api.Health](t, ask(t, "GET", base+"/v1/health", nil).want(t, 200))
	if h.Identities != 1 || !h.StoreAnswers || h.Tokens || !h.Complete {
		t.Errorf("%+v", h)
	}
}

// TestHealthOfAStoreThatIsDown says so, and shows what was known.
func TestHealthOfAStoreThatIsDown(t *testing.T) {
	s, base := start(t, nil)
	post(t, base, []byte("a;b 5\n"), "", 201)
	s.Store.Blobs = downStore{s.Store.Blobs}
	h := read[api.Health](t, ask(t, "GET", base+"/v1/health", nil).want(t, 200))
	if h.StoreAnswers || h.Profiles != 1 {
		t.Errorf("%+v", h)
	}
}

// downStore is a store that does not answer.
type downStore struct{ blob.Store }

func (d downStore) Get(context.Context, string, int64, int64) (io.ReadCloser, blob.Info, error) {
	return nil, blob.Info{}, blob.ErrUnavailable
}

// TestHome answers a browser with the page, and others with a text.
func TestHome(t *testing.T) {
	_, base := start(t, nil)
	if a := ask(t, "GET", base+"/", nil).want(t, 200); !strings.HasPrefix(string(a.body), "Hallmark symbol server") {
		t.Errorf("%s", a.body)
	}
	a := ask(t, "GET", base+"/", nil, "Accept", "text/html,*/*").want(t, 200)
	if a.Header.Get("Content-Security-Policy") != web.Policy || !strings.Contains(string(a.body), "app/site.js") {
		t.Errorf("%v %s", a.Header, a.body)
	}
	for _, path := range []string{"/app/site.js", "/app/site.css", "/app/js/site.js", "/app/css/site.css"} {
		ask(t, "GET", base+path, nil).want(t, 200)
	}
	for _, path := range []string{"/app/site.html", "/app/", "/app/../web.go", "/app/js/none.js"} {
		if a := ask(t, "GET", base+path, nil); a.StatusCode == 200 {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}

// logIn returns the cookie of a session.
func logIn(t *testing.T, base, secret, next string, status int, header ...string) (cookie *http.Cookie, to string) {
	t.Helper()
	header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	a := ask(t, "POST", base+"/login", strings.NewReader(url.Values{"token": {secret}, "next": {next}}.Encode()), header...).want(t, status)
	if len(a.Cookies()) == 1 {
		cookie = a.Cookies()[0]
	}
	return cookie, a.Header.Get("Location")
}

// TestLogin shows pages to a browser with a token, and lets it change nothing.
func TestLogin(t *testing.T) {
	file, secrets := testTokens(t)
	s, base := start(t, func(c *Config) { c.Tokens = file })
	k := post(t, base, []byte("a;b 5\n"), "", 201, "Authorization", "Bearer "+secrets[Admin])
	page := k.URL + "/"
	browser := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "none"}
	for _, path := range []string{page, k.URL, k.URL + "?base=" + k.ID} {
		a := ask(t, "GET", base+path, nil, browser...).want(t, 303)
		if a.Header.Get("Location") != "/login?next="+url.QueryEscape(path) {
			t.Errorf("%s: %v", path, a.Header)
		}
	}
	ask(t, "GET", base+k.URL+"/api/profile", nil).want(t, 401)
	ask(t, "GET", base+"/", nil, "Accept", "text/html").want(t, 200)
	ask(t, "GET", base+"/v1/search", nil).want(t, 401)
	form := ask(t, "GET", base+"/login?next="+url.QueryEscape(`/profiles/"><script>alert(1)</script>`), nil).want(t, 200)
	if policy := form.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self'") || !strings.Contains(policy, "script-src 'self'") {
		t.Error(policy)
	}
	if strings.Contains(string(form.body), "<script>") {
		t.Errorf("%s", form.body)
	}
	logIn(t, base, "hallmark_WRONG", page, 401)
	logIn(t, base, "", page, 401)
	logIn(t, base, secrets[Admin], page, 403, "Sec-Fetch-Site", "cross-site")
	cookie, to := logIn(t, base, secrets[Admin], page, 303)
	if to != page || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, secrets[Admin]) || cookie.Secure {
		t.Errorf("%s %v", to, cookie)
	}
	as := cookie.Name + "=" + cookie.Value
	for _, path := range []string{page, k.URL + "/api/profile", "/v1/search", "/v1/profiles", "/v1/missing"} {
		ask(t, "GET", base+path, nil, "Cookie", as).want(t, 200)
		ask(t, "GET", base+path, nil, "Cookie", as, "Sec-Fetch-Site", "same-origin").want(t, 200)
		ask(t, "GET", base+path, nil, "Cookie", as, "Sec-Fetch-Site", "same-site").want(t, 401)
		ask(t, "GET", base+path, nil, "Cookie", cookie.Name+"=other").want(t, 401)
	}
	if h := read[api.Health](t, ask(t, "GET", base+"/v1/health", nil, "Cookie", as).want(t, 200)); h.Who != "admin" {
		t.Errorf("%+v", h)
	}
	// A link on another site comes without the cookie, and with it when the page asks again.
	onward := ask(t, "GET", base+page, nil, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "cross-site").want(t, 200)
	if !strings.Contains(string(onward.body), `content="0;url=`+page+`"`) {
		t.Errorf("%s", onward.body)
	}
	// With a cookie alone nothing is changed, whoever it is of.
	ask(t, "POST", base+"/v1/profiles", strings.NewReader("a;b 6\n"), "Cookie", as).want(t, 401)
	ask(t, "DELETE", base+"/v1/profiles/"+k.ID, nil, "Cookie", as).want(t, 401)
	ask(t, "POST", base+"/v1/identities/"+numberedID(t, 1).String()+"/pin", nil, "Cookie", as).want(t, 401)
	// A session has the roles of its token, and ends with it and by the button.
	reader, _ := logIn(t, base, secrets[Read], "/", 303)
	ask(t, "GET", base+"/v1/search", nil, "Cookie", reader.Name+"="+reader.Value).want(t, 200)
	ask(t, "GET", base+page, nil, append(browser, "Cookie", reader.Name+"="+reader.Value)...).want(t, 403)
	if out := ask(t, "POST", base+"/logout", nil, "Cookie", as).want(t, 204); out.Cookies()[0].MaxAge >= 0 {
		t.Error(out.Cookies())
	}
	ask(t, "GET", base+"/v1/search", nil, "Cookie", as).want(t, 401)
	if err := WriteTokens(file, nil); err != nil {
		t.Fatal(err)
	}
	s.guard.mu.Lock()
	s.guard.read = time.Time{}
	s.guard.mu.Unlock()
	ask(t, "GET", base+"/v1/search", nil, "Cookie", reader.Name+"="+reader.Value).want(t, 401)
	// Behind TLS the cookie is for TLS alone.
	if c := cookieOf(&http.Request{Header: http.Header{"X-Forwarded-Proto": {"https"}}}, "x", 1); !c.Secure || !strings.HasPrefix(c.Name, "__Host-") {
		t.Error(c)
	}
}

// TestNextStaysHere leads to no other site after the login.
func TestNextStaysHere(t *testing.T) {
	for next, want := range map[string]string{
		"/profiles/x?base=y": "/profiles/x?base=y", "/#view=missing": "/#view=missing", "": "/", "x": "/", "//evil.example": "/", "/\\evil.example": "/", "https://evil.example/": "/",
		"javascript:alert(1)": "/", "/%2fevil": "/", "/\t/evil.example": "/", "///evil": "/", "http:/x": "/", "/" + strings.Repeat("a", 5000): "/", "/a\r\nX: y": "/",
	} {
		if got := nextOf(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

// TestSessionsAreBounded keeps so many of one token, and so many of all.
func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	other := s.begin("other", now)
	var cookies []string
	for i := range 2 * maxOfOneToken {
		cookies = append(cookies, s.begin("one", now.Add(time.Duration(i)*time.Second)))
	}
	later := now.Add(time.Hour)
	if s.token(cookies[0], later) != "" || s.token(cookies[len(cookies)-1], later) != "one" || s.token(other, later) != "other" || len(s.all) != maxOfOneToken+1 {
		t.Errorf("%d sessions", len(s.all))
	}
	for i := range 2 * maxSessions {
		s.begin(fmt.Sprint(i), now.Add(time.Hour))
	}
	if len(s.all) > maxSessions {
		t.Errorf("%d sessions", len(s.all))
	}
	if s.token(other, now.Add(sessionTime+time.Second)) != "" {
		t.Error("a session does not end")
	}
}

// TestFindFunctions wants the functions of binaries that were symbolized, by each of their names, and
// a count of the others.
func TestFindFunctions(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	find := func(query string) api.FunctionsAnswer {
		t.Helper()
		return read[api.FunctionsAnswer](t, ask(t, "GET", base+"/v1/functions?"+query, nil).want(t, 200))
	}
	if a := find("q=main"); len(a.Functions) != 0 || a.Searched != 0 || a.NotHere != 1 || !a.Complete {
		t.Errorf("before anybody asked: %+v", a)
	}
	at, err := strconv.ParseUint(addressOf(t, p, "main"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{{ID: p.id.String(), Virtual: true, Addresses: []uint64{at}}}}); err != nil {
		t.Fatal(err)
	}
	a := find("q=mai")
	i := slices.IndexFunc(a.Functions, func(f api.FoundFunction) bool { return f.Function == "main" })
	if i < 0 || a.Functions[i].Virtual != at || a.Functions[i].Line == 0 || a.Functions[i].Binary != "/usr/bin/prog" || a.Searched != 1 || a.NotHere != 0 {
		t.Errorf("%+v", a)
	}
	for query, want := range map[string]int{
		"q=nothing_has_this": 0, "q=main&id=" + p.id.String(): 1, "q=main&id=" + strings.Repeat("ab", 20): 0, "q=main&after=" + p.id.String(): 0, "q=main&after=0": 1,
	} {
		if a := find(query); min(len(a.Functions), 1) != want || a.Next != "" {
			t.Errorf("%s: %+v", query, a)
		}
	}
	for _, bad := range []string{"", "q=ma", "q=" + strings.Repeat("x", maxSearch+1)} {
		ask(t, "GET", base+"/v1/functions?"+bad, nil).want(t, 400)
	}
	_, none := start(t, nil)
	ask(t, "GET", none+"/v1/functions?q=main", nil).want(t, 404)
}

// sendLibrary compiles a library with a build ID, and has the server keep it and make its index.
func sendLibrary(t *testing.T, base, source, id string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(name+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-shared", "-fPIC", "-Wl,--build-id=0x"+id, "-o", name, name+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%.300s", err, out)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	upload(t, base, b, "").want(t, 201)
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{{ID: id, Addresses: []uint64{1}}}}); err != nil {
		t.Fatal(err)
	}
}

// TestLongFunctions wants a bound of what an answer has of names.
func TestLongFunctions(t *testing.T) {
	_, base := start(t, withSymbols(t))
	var source strings.Builder
	for i := range maxFunctionsOf - 1 {
		fmt.Fprintf(&source, "int %s_%d(void) { return %d; }\n", strings.Repeat("long", 10_000), i, i)
	}
	sendLibrary(t, base, source.String(), strings.Repeat("0123456789", 4))
	a := ask(t, "GET", base+"/v1/functions?q=long", nil).want(t, 200)
	if found := read[api.FunctionsAnswer](t, a); len(found.Functions) == 0 || found.Cut != 1 || len(a.body) > 2*maxFunctionText {
		t.Errorf("%d functions, %d bytes, %d cut", len(found.Functions), len(a.body), found.Cut)
	}
}

// TestFunctionsGoOn wants each page to go on behind the one before it.
func TestFunctionsGoOn(t *testing.T) {
	_, base := start(t, withSymbols(t))
	var source strings.Builder
	for i := range maxFunctionsOf + 20 {
		fmt.Fprintf(&source, "int many_%d(void) { return %d; }\n", i, i)
	}
	want := map[string]bool{}
	for i := range 5 {
		id := fmt.Sprintf("%02d%038x", i, i)
		sendLibrary(t, base, source.String(), id)
		want[id] = true
	}
	pages, after := 0, ""
	for {
		a := read[api.FunctionsAnswer](t, ask(t, "GET", base+"/v1/functions?q=many_&after="+after, nil).want(t, 200))
		count := map[string]int{}
		for _, f := range a.Functions {
			count[f.ID.String()]++
		}
		if len(a.Functions) > maxFunctions || a.Cut != len(count) || a.Searched < len(count) {
			t.Errorf("%d functions of %d binaries, %+v", len(a.Functions), len(count), a)
		}
		for id, n := range count {
			if n != maxFunctionsOf || !want[id] {
				t.Errorf("%d functions of %s", n, id)
			}
			delete(want, id)
		}
		if pages++; a.Next == "" {
			break
		}
		after = a.Next
	}
	if len(want) > 0 || pages < 3 {
		t.Errorf("%d pages lack %v", pages, want)
	}
}

// TestWhoAsked counts who asked for a binary, and names them to who may do everything.
func TestWhoAsked(t *testing.T) {
	p := program(t)
	file, secrets := testTokens(t)
	s, base := start(t, func(c *Config) { c.Tokens = file })
	as := func(role Role) []string { return []string{"Authorization", "Bearer " + secrets[role]} }
	upload(t, base, p.full, "", as(Admin)...).want(t, 201)
	about := func(role Role) *api.Asked {
		t.Helper()
		return read[api.Identity](t, ask(t, "GET", base+"/v1/identities/"+p.id.String(), nil, as(role)...).want(t, 200)).Asked
	}
	if a := about(Admin); a != nil {
		t.Errorf("nobody asked: %+v", a)
	}
	for range 3 {
		ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil, as(Read)...).want(t, 200)
	}
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/section/.text", nil, as(Admin)...).want(t, 200)
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 401)
	a := about(Admin)
	if a == nil || a.Count != 4 || len(a.By) != 2 || a.By[0].Count != 3 || a.By[0].Who == "" || a.By[1].Count != 1 || a.Last.IsZero() {
		t.Errorf("%+v", a)
	}
	if a := about(Read); a == nil || a.Count != 4 || a.By != nil {
		t.Errorf("to a reader: %+v", a)
	}
	for i := range 2 * maxAsked {
		s.asked.note(fmt.Sprint(i), p.id, "")
	}
	if a := about(Admin); a.Count != 4+2*maxAsked || len(a.By) != maxAskers {
		t.Errorf("%d by %d", a.Count, len(a.By))
	}
}

// scannedLocal has five identities in two packages, and gives none.
type scannedLocal struct{ Local }

func (scannedLocal) Counts() (packages, identities int64) { return 2, 5 }

// TestSearchOfScanned wants a search to report that there is more than it can find.
func TestSearchOfScanned(t *testing.T) {
	_, base := start(t, func(c *Config) { c.Local = scannedLocal{} })
	var a api.SearchAnswer
	if err := json.Unmarshal(ask(t, "GET", base+"/v1/search?q=zstd", nil).want(t, 200).body, &a); err != nil || a.Scanned != 5 || a.Total != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}
