package view

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/proftest"
	"hallmark/symbol"
)

// named gives every offset of every file a function of the same name.
type named string

func (n named) Lookup(_ buildid.ID, _ string, offsets []addr.Offset) []symbol.Result {
	results := make([]symbol.Result, len(offsets))
	for i := range results {
		results[i].Frames = []symbol.Frame{{Func: string(n), Linkage: string(n), File: "looked_up.c", Line: 42}}
	}
	return results
}

// start serves p for the time of the test and returns the URL of the pages.
func start(t *testing.T, p *pprof.Profile, o Options) string {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // the driver keeps its settings there
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
		return url
	case err := <-served:
		served <- err
		t.Fatal("it ended before it was ready")
		return ""
	}
}

func get(t *testing.T, url string, header ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPagesShowOurFunctions(t *testing.T) {
	var problems bytes.Buffer
	url := start(t, proftest.Mixed(), Options{Symbols: named("looked_up"), Errors: &problems})
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
		status, body := get(t, url+test.page)
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

func TestRootLeadsToThePages(t *testing.T) {
	url := start(t, proftest.Mixed(), Options{})
	if status, body := get(t, strings.TrimSuffix(url, "ui/")); status != http.StatusOK || !strings.Contains(body, "flamegraph") {
		t.Errorf("status %d:\n%s", status, body)
	}
}

func TestWhatThereIsNot(t *testing.T) {
	url := start(t, proftest.Mixed(), Options{})
	for page, want := range map[string]int{"disasm?f=main": http.StatusNotImplemented, "nothing": http.StatusNotFound} {
		if status, body := get(t, url+page); status != want {
			t.Errorf("%s: status %d, want %d: %s", page, status, want, body)
		}
	}
}

// TestDownloadIsTheProfile wants the symbols that were looked up in what can be
// downloaded, and none of the names that only the pages have.
func TestDownloadIsTheProfile(t *testing.T) {
	url := start(t, proftest.Mixed(), Options{Symbols: named("looked_up")})
	_, body := get(t, url+"download")
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
}

func TestDiff(t *testing.T) {
	p, base := proftest.Mixed(), proftest.Mixed()
	for _, s := range base.Sample {
		s.Value[0]++
		s.Value[1] += proftest.Period
	}
	url := start(t, p, Options{Base: base, SampleType: "samples"})
	_, body := get(t, url+"top")
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

func TestOnlyThisMachineIsServed(t *testing.T) {
	url := start(t, proftest.Mixed(), Options{})
	for _, test := range []struct {
		name   string
		header []string
		want   int
	}{
		{"by address", nil, http.StatusOK},
		{"by name", []string{"Host", "localhost:1234"}, http.StatusOK},
		{"by address, version 6", []string{"Host", "[::1]:1234"}, http.StatusOK},
		{"by a foreign name", []string{"Host", "attacker.example"}, http.StatusForbidden},
		{"by a foreign name with port", []string{"Host", "attacker.example:80"}, http.StatusForbidden},
		{"by a name that only starts well", []string{"Host", "localhost.attacker.example"}, http.StatusForbidden},
		{"a link elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, http.StatusOK},
		{"a script elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
		{"a script on another port", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"the page itself", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, http.StatusOK},
	} {
		if status, _ := get(t, url+"top", test.header...); status != test.want {
			t.Errorf("%s: status %d, want %d", test.name, status, test.want)
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
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
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
