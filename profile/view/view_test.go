package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"hallmark/addr"
	"hallmark/internal/plaintext"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/symbol"
	"hallmark/web"
)

// named gives every offset of every file a function of the same name.
type named string

func (n named) Lookup(_ context.Context, _ *profile.Binary, offsets []addr.Offset) []symbol.Result {
	results := make([]symbol.Result, len(offsets))
	for i := range results {
		results[i].Frames = []symbol.Frame{{Func: string(n), Linkage: string(n), File: "looked_up.c", Line: 42}}
	}
	return results
}

// site is what Serve serves, for the user who opened its URL.
type site struct {
	url    string // with the key
	pages  string // what the names of pages are added to
	client *http.Client
}

// start serves p for the time of the test and opens the URL.
func start(t *testing.T, p *pprof.Profile, o Options) *site {
	t.Helper()
	return startAs(t, p, o, Server{})
}

// startAs is start by such a server.
func startAs(t *testing.T, p *pprof.Profile, o Options, s Server) *site {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	s.Ready = func(url string) { ready <- url }
	served := make(chan error, 1)
	shown := compacted(t, p)
	go func() {
		served <- s.Serve(ctx, func() (*web.Profile, error) { return Prepare(t.Context(), shown, o) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	select {
	case url := <-ready:
		return open(t, url)
	case err := <-served:
		served <- err
		t.Fatal("it ended before it was ready")
		return nil
	}
}

// compacted returns a profile as it is shown.
func compacted(t *testing.T, p *pprof.Profile) *compact.Profile {
	t.Helper()
	shown, err := compact.FromPprof(p)
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

// mixed opens a profile.
func mixed(t *testing.T) func() (*web.Profile, error) {
	return func() (*web.Profile, error) { return Prepare(t.Context(), compacted(t, proftest.Mixed()), Options{}) }
}

// pages are all that there is to ask for about a profile that has functions.
var pages = []string{
	"", "app/index.js", "app/index.css", "app/js/main.js", "app/css/base.css", "api/profile", "api/coverage", "api/tree", "api/tree?invert=1", "api/tree?split=process",
	"api/functions", "api/binaries", "api/labels?key=process", "api/search?q=.", "api/function?fn=0", "api/lines?fn=0", "api/code?fn=0",
	"api/callers?fn=0", "api/callees?fn=0", "api/time?by=process", "api/download",
}

// linesOf returns what is asked for the lines of a function.
func (s *site) linesOf(t *testing.T, function string) string {
	t.Helper()
	var table struct {
		Rows []struct{ Name, Key string }
	}
	_, body := s.get(t, "api/functions")
	if err := json.Unmarshal([]byte(body), &table); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, row := range table.Rows {
		if row.Name == function {
			return "api/lines?fn=" + row.Key
		}
	}
	t.Fatalf("no function %s in %s", function, body)
	return ""
}

// open opens a URL as a browser does that is told to.
func open(t *testing.T, url string) *site {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{url: url, client: &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
	s.pages, _, _ = strings.Cut(url, "?")
	if status, _, body := s.ask(t, "GET", url); status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", url, status, body)
	}
	return s
}

// stranger returns the site for somebody who knows no more than where it is.
func (s *site) stranger() *site {
	return &site{s.pages, s.pages, &http.Client{Transport: s.client.Transport, Timeout: s.client.Timeout}}
}

// get asks for a page, with header fields in pairs.
func (s *site) get(t *testing.T, page string, header ...string) (status int, body string) {
	t.Helper()
	status, _, body = s.ask(t, "GET", s.pages+page, header...)
	return status, body
}

func (s *site) addCookies(r *http.Request) {
	if s.client.Jar == nil {
		return
	}
	for _, c := range s.client.Jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
}

func (s *site) ask(t *testing.T, method, url string, header ...string) (status int, h http.Header, body string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
			s.addCookies(r) // the jar has none for another host, but an attacker may
		}
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestPagesShowOurFunctions(t *testing.T) {
	var problems bytes.Buffer
	site := startAs(t, proftest.Mixed(), Options{Title: "mixed.pb.gz", Symbols: named("looked_up")}, Server{Errors: &problems})
	for _, test := range []struct {
		page string
		want []string
	}{
		{"", []string{"app/index.js"}},
		{"api/profile", []string{`"title":"mixed.pb.gz"`, `"type":"cpu"`, `"key":"process"`}},
		{"api/tree", []string{"looked_up", "vfs_read", "walk", "[not-mapped]", "[file-gone] old"}},
		{"api/functions", []string{"looked_up", "vfs_read", "walk"}},
		{"api/functions?type=samples", []string{"looked_up"}},
		{"api/tree?focus=loop", []string{"loop", "step"}},
		{"api/binaries", []string{proftest.AppID, "/usr/bin/app"}},
		{"api/labels?key=process", []string{`"value":"app"`, `"pids":2`}},
		{site.linesOf(t, "looked_up"), []string{"looked_up.c"}},
	} {
		status, body := site.get(t, test.page)
		if status != http.StatusOK {
			t.Errorf("%s: status %d", test.page, status)
		}
		for _, want := range test.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the answer has no %q", test.page, want)
			}
		}
	}
	if problems.Len() > 0 {
		t.Errorf("the server complains: %s", &problems)
	}
}

func TestURLLeadsToThePages(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	if status, _, body := site.ask(t, "GET", site.url); status != http.StatusOK || !strings.Contains(body, "app/index.js") {
		t.Errorf("status %d:\n%s", status, body)
	}
	for _, page := range pages {
		if status, body := site.get(t, page); status != http.StatusOK && page != "api/code?fn=0" {
			t.Errorf("%s: status %d: %.200s", page, status, body)
		}
	}
}

func TestWhatThereIsNot(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	for page, want := range map[string]int{
		"nothing": http.StatusNotFound, "app/": http.StatusNotFound, "app/js/nothing.js": http.StatusNotFound, "app/index.html": http.StatusNotFound,
		"app/js/..%2f..%2fweb.go": http.StatusNotFound, "api/": http.StatusNotFound, "api/nothing": http.StatusNotFound, "api/function?fn=99999": http.StatusNotFound,
		"api/function?fn=-1": http.StatusNotFound, "api/function?fn=0123456789abcdef": http.StatusNotFound, "api/profile?p=other": http.StatusNotFound,
		"api/tree?root=1.2.3.4": http.StatusNotFound, "api/tree?root=x": http.StatusBadRequest, "api/tree?width=0": http.StatusBadRequest,
		"api/tree?focus=" + strings.Repeat("x", 9000): http.StatusBadRequest, "api/tree?type=nothing": http.StatusBadRequest, "api/tree?label=x": http.StatusBadRequest,
		"api/tree?focus=(":     http.StatusOK,
		"api/functions?sort=x": http.StatusBadRequest, "api/functions?offset=-1": http.StatusBadRequest, "api/search?q=(": http.StatusOK, // the text itself
		"api/tree?from=5&to=3": http.StatusBadRequest, "saveconfig?config=mine": http.StatusNotFound, "deleteconfig?config=mine": http.StatusNotFound,
		"api/search?q=" + strings.Repeat("x", 9000): http.StatusBadRequest,
	} {
		if status, body := site.get(t, page); status != want {
			t.Errorf("%s: status %d, want %d: %s", page, status, want, body)
		}
	}
}

// TestDownloadIsTheProfile wants the symbols that were looked up in what can be
// downloaded, and none of the names that only the pages have.
func TestDownloadIsTheProfile(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{Symbols: named("looked_up")})
	_, body := site.get(t, "api/download")
	p, err := pprof.ParseData([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range p.Function {
		found = found || f.Name == "looked_up"
		if strings.HasPrefix(f.Name, "[") {
			t.Errorf("the download has a function %s", f.Name)
		}
	}
	if !found {
		t.Error("the download has no symbols")
	}
	want := proftest.Mixed()
	for i, m := range p.Mapping {
		if m.File != want.Mapping[i].File || m.BuildID != want.Mapping[i].BuildID {
			t.Errorf("mapping %d is of %q, %q; want %q, %q", i, m.File, m.BuildID, want.Mapping[i].File, want.Mapping[i].BuildID)
		}
	}
}

func TestDiff(t *testing.T) {
	p, base := proftest.Mixed(), proftest.Mixed()
	for _, s := range base.Sample {
		s.Value[0]++
		s.Value[1] += proftest.Period
	}
	site := start(t, p, Options{Base: compacted(t, base), BaseTitle: "base", SampleType: "samples"})
	var table struct {
		Rows []struct {
			Name                         string
			Flat, Cum, BaseFlat, BaseCum int64
		}
	}
	_, body := site.get(t, "api/functions?scale=total")
	if err := json.Unmarshal([]byte(body), &table); err != nil {
		t.Fatal(err)
	}
	// The base has one more of each stack. vfs_read is the leaf of one stack, and
	// in the middle of another.
	want := map[string][2]int64{"walk": {1, 1}, "vfs_read": {1, 2}}
	for _, row := range table.Rows {
		if w, ok := want[row.Name]; ok {
			delete(want, row.Name)
			if got := [2]int64{row.BaseFlat - row.Flat, row.BaseCum - row.Cum}; got != w {
				t.Errorf("%s has %d more in the base, want %d", row.Name, got, w)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no %v in %s", want, body)
	}
}

// TestBuilds compares two builds of one program: an offset is of the build that has it.
func TestBuilds(t *testing.T) {
	made := func(id string, at uint64) *pprof.Profile {
		m := proftest.New()
		m.Sample("app", 1, 10, m.Location(m.Mapping("/opt/app", id, 0x400000), at, "work"))
		return m.Profile
	}
	site := start(t, made(proftest.AppID, 0x400230), Options{Base: compacted(t, made(proftest.KernelID, 0x400ABC)), BaseTitle: "base"})
	var got struct {
		Identity, Lookup, BaseIdentity, BaseLookup string
		Places                                     []struct{ Offset, Virt string }
	}
	_, body := site.get(t, "api/function?fn=0")
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Places) != 1 || got.Places[0].Offset != "0x1230" || got.Places[0].Virt != "0x400230" {
		t.Errorf("places are %+v", got.Places)
	}
	if got.Lookup != "hallmark lookup "+proftest.AppID+" 0x1230" || got.BaseLookup != "hallmark lookup "+proftest.KernelID+" 0x1abc" {
		t.Errorf("commands are %q and %q", got.Lookup, got.BaseLookup)
	}
	_, body = site.get(t, "api/binaries")
	if !strings.Contains(body, `"baseIdentity":"`+proftest.KernelID+`"`) {
		t.Errorf("binaries do not say which build was before: %s", body)
	}
	if _, body = site.get(t, "api/functions?q=("); !strings.Contains(body, `"count":0`) {
		t.Errorf("a text that is no regular expression: %s", body)
	}
}

func TestListen(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		if err := (Server{Address: address}).Serve(context.Background(), mixed(t)); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: error %v, want %v", address, err, ErrNotLoopback)
		}
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:port"} {
		if l, err := listen(address); err == nil {
			l.Close()
			t.Errorf("%q is no address and was listened at", address)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "127.1.2.3:0", "localhost:0"} {
		l, err := listen(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%s: listens at %v", address, l.Addr())
		}
		l.Close()
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var url string
	err := Server{Ready: func(u string) { url = u; cancel() }}.Serve(ctx, mixed(t))
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := http.Get(url); err == nil {
		t.Errorf("%s still answers", url)
	}
}

func TestBaseOfAnotherKind(t *testing.T) {
	o := Options{Base: compacted(t, proftest.Heap(t))}
	if _, err := Prepare(t.Context(), compacted(t, proftest.Mixed()), o); err == nil {
		t.Error("no error")
	}
}

// TestOpensMeanwhile has a browser ask before the profile is open.
func TestOpensMeanwhile(t *testing.T) {
	for _, failure := range []error{nil, errors.New("x.pb.gz: offset 7: <b>no profile</b>\x1b[2J")} {
		ctx, cancel := context.WithCancel(context.Background())
		ready, read, served := make(chan string, 1), make(chan struct{}), make(chan error, 1)
		go func() {
			served <- Server{Ready: func(url string) { ready <- url }}.Serve(ctx, func() (*web.Profile, error) {
				<-read
				if failure != nil {
					return nil, failure
				}
				return mixed(t)()
			})
		}()
		site := open(t, <-ready)
		if status, body := site.get(t, "app/js/main.js"); status != http.StatusOK || body == "" {
			t.Errorf("the page is not there: status %d", status)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			status, body := site.get(t, "api/profile")
			switch {
			case failure == nil && status != http.StatusOK, failure != nil && status != http.StatusInternalServerError:
				t.Errorf("status %d: %s", status, body)
			case failure != nil && strings.TrimSpace(body) != plaintext.Line(failure.Error()):
				t.Errorf("the answer is %q", body)
			}
		}()
		select {
		case <-asked:
			t.Error("there was an answer before the profile")
		case <-time.After(2 * patience):
		}
		close(read)
		<-asked
		if failure == nil {
			cancel()
		}
		if err := <-served; !errors.Is(err, failure) {
			t.Errorf("Serve: %v, want %v", err, failure)
		}
		cancel()
	}
}

// TestEndsWhileItOpens wants nobody to wait for a profile that nobody wants any more.
func TestEndsWhileItOpens(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan struct{})
	err := Server{Ready: func(string) { cancel() }}.Serve(ctx, func() (*web.Profile, error) {
		<-read
		return nil, errors.New("late")
	})
	close(read)
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestSoonFailed wants nobody to hear of pages that are not there.
func TestSoonFailed(t *testing.T) {
	failure := errors.New("no profile")
	err := Server{Ready: func(string) { t.Error("it is served") }}.Serve(context.Background(), func() (*web.Profile, error) { return nil, failure })
	if !errors.Is(err, failure) {
		t.Errorf("Serve: %v", err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
