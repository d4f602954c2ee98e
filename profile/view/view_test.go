package view

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"hallmark/addr"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/symbol"
)

// named gives every offset of every file a function of the same name.
type named string

func (n named) Lookup(_ *profile.Binary, offsets []addr.Offset) []symbol.Result {
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
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	o.Ready = func(url string) { ready <- url }
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, "127.0.0.1:0", p, o) }()
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
	site := start(t, proftest.Mixed(), Options{Symbols: named("looked_up"), Errors: &problems})
	for _, test := range []struct {
		page string
		want []string
	}{
		{"", []string{"looked_up", "vfs_read", "[not-mapped]"}}, // redirects to the flame graph
		{"flamegraph", []string{"looked_up", "vfs_read", "walk", "[not-mapped]", "[file-gone] old"}},
		{"top", []string{"looked_up", "vfs_read", "walk"}},
		{"top?si=samples", []string{"looked_up"}},
		{"peek?f=loop", []string{"loop", "step"}},
		{"source?f=looked_up", []string{"looked_up.c"}},
		{"flamegraph?f=vfs_read", []string{"vfs_read"}},
	} {
		status, body := site.get(t, test.page)
		if status != http.StatusOK {
			t.Errorf("%s: status %d", test.page, status)
		}
		for _, want := range test.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page has no %q", test.page, want)
			}
		}
	}
	if problems.Len() > 0 {
		t.Errorf("the driver complains: %s", &problems)
	}
}

func TestURLLeadsToThePages(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	if status, _, body := site.ask(t, "GET", site.url); status != http.StatusOK || !strings.Contains(body, "flamegraph") {
		t.Errorf("status %d:\n%s", status, body)
	}
}

func TestWhatThereIsNot(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	for page, want := range map[string]int{
		"disasm?f=main": http.StatusNotImplemented, "graph": http.StatusNotImplemented, "nothing": http.StatusNotFound,
		"saveconfig?config=mine": http.StatusNotFound, "deleteconfig?config=mine": http.StatusNotFound,
	} {
		if status, body := site.get(t, page); status != want {
			t.Errorf("%s: status %d, want %d: %s", page, status, want, body)
		}
	}
}

// TestMenusLeadSomewhere wants no link in the driver's pages to a page that there is not, however
// the driver writes them.
func TestMenusLeadSomewhere(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	for _, page := range []string{"flamegraph", "top", "peek?f=."} {
		_, body := site.get(t, page)
		links := regexp.MustCompile(`href="\./(\w+)`).FindAllStringSubmatch(body, -1)
		if len(links) < 3 {
			t.Errorf("%s: links %q", page, links)
		}
		for _, link := range links {
			if status, text := site.get(t, link[1]+"?f=main"); status != http.StatusOK {
				t.Errorf("%s leads to %s: status %d, %s", page, link[1], status, text)
			}
		}
	}
	const text = `<html></head><a href="./graph" id="graphbtn">Graph</a><script>1</script><a href="./disasm" id="disasm">Disassemble</a>end`
	var want string
	for size := len(text); size > 0; size-- {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "text/html")
		a := &answer{to: w, status: http.StatusOK}
		for part := range slices.Chunk([]byte(text), size) {
			a.Write(part)
		}
		a.end()
		got := strings.ReplaceAll(w.Body.String(), a.nonce, "")
		if want == "" {
			want = got
		}
		if got != want || strings.Contains(got, "href") || !strings.HasSuffix(got, `id="disasm" hidden></a>end`) {
			t.Errorf("in parts of %d: %s", size, got)
		}
	}
}

// TestDownloadIsTheProfile wants the symbols that were looked up in what can be
// downloaded, and none of the names that only the pages have.
func TestDownloadIsTheProfile(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{Symbols: named("looked_up")})
	_, body := site.get(t, "download")
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
	site := start(t, p, Options{Base: base, SampleType: "samples"})
	_, body := site.get(t, "top")
	// The base has one more of each stack. vfs_read is the leaf of one stack, and
	// in the middle of another.
	for _, want := range []string{
		`{"Name":"walk","InlineLabel":"","Flat":-1,"Cum":-1,`,
		`{"Name":"vfs_read","InlineLabel":"","Flat":-1,"Cum":-2,`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the table of differences has no %s", want)
		}
	}
}

func TestListen(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		if err := Serve(context.Background(), address, proftest.Mixed(), Options{}); !errors.Is(err, ErrNotLoopback) {
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
	err := Serve(ctx, "127.0.0.1:0", proftest.Mixed(), Options{Ready: func(u string) { url = u; cancel() }})
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := http.Get(url); err == nil {
		t.Errorf("%s still answers", url)
	}
}

// TestBaseOfAnotherKind wants an error before anything is served.
func TestBaseOfAnotherKind(t *testing.T) {
	o := Options{Base: proftest.Heap(t), Ready: func(string) { t.Error("it is served") }}
	if err := Serve(context.Background(), "127.0.0.1:0", proftest.Mixed(), o); err == nil {
		t.Error("no error")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
