package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/blob/blobtest"
	"hallmark/server/indexer"
	"hallmark/server/store"
)

// start starts a server over an empty directory.
func start(t *testing.T, change func(*Config)) (*Server, string) {
	t.Helper()
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}}
	if change != nil {
		change(&c)
	}
	s := New(c)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { srv.Close(); c.Store.Close(); blobs.Close() })
	return s, srv.URL
}

// answered is an answer that was read.
type answered struct {
	*http.Response
	body []byte
}

func ask(t *testing.T, method, url string, body io.Reader, header ...string) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp, b}
}

func (a answered) want(t *testing.T, status int) answered {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s %s: %d %s, want %d", a.Request.Method, a.Request.URL.Path, a.StatusCode, a.body[:min(len(a.body), 300)], status)
	}
	return a
}

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func upload(t *testing.T, base string, b []byte, query string, header ...string) answered {
	t.Helper()
	return ask(t, "PUT", base+"/v1/files/"+hashHex(b)+"?"+query, bytes.NewReader(b), header...)
}

// built is a program that was compiled, with its parts.
type built struct {
	dir                   string
	id                    buildid.ID
	full, stripped, debug []byte
}

var buildOnce = sync.OnceValues(func() (built, error) {
	dir, err := os.MkdirTemp("", "hallmark-server")
	if err != nil {
		return built{}, err
	}
	b := built{dir: dir}
	source := "static int g(int x) { return x * 3; }\n__attribute__((noinline)) int f(int x) { return g(x) + 1; }\nint main(int argc, char **argv) { return f(argc); }\n"
	if err := os.WriteFile(filepath.Join(dir, "prog.c"), []byte(source), 0o644); err != nil {
		return b, err
	}
	for _, args := range [][]string{
		{"gcc", "-g", "-O2", "-Wl,--build-id", "-o", "full", filepath.Join(dir, "prog.c")},
		{"objcopy", "--only-keep-debug", "full", "prog.debug"},
		{"strip", "-o", "prog", "full"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	for name, to := range map[string]*[]byte{"full": &b.full, "prog": &b.stripped, "prog.debug": &b.debug} {
		if *to, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return b, err
		}
	}
	info, err := buildid.ReadFile(filepath.Join(dir, "prog"))
	b.id = info.ID
	return b, err
})

func TestMain(m *testing.M) {
	indexer.RunIfChild()
	serveIfChild()
	code := testenv.Isolated(m).Run()
	if b, _ := buildOnce(); b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
	os.Exit(code)
}

func program(t *testing.T) built {
	t.Helper()
	for _, tool := range []string{"gcc", "objcopy", "strip"} {
		testenv.Tool(t, tool)
	}
	b, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUploadAndGet(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	url := base + "/buildid/" + p.id.String()
	ask(t, "GET", url+"/executable", nil).want(t, 404)
	upload(t, base, p.stripped, "id="+p.id.String()+"&name=/usr/bin/prog").want(t, 201)
	upload(t, base, p.stripped, "id="+p.id.String()+"&name=/usr/bin/prog").want(t, 200)
	ask(t, "GET", url+"/debuginfo", nil).want(t, 404)
	upload(t, base, p.debug, "name=/usr/lib/debug/prog.debug").want(t, 201)

	exe := ask(t, "GET", url+"/executable", nil).want(t, 200)
	if !bytes.Equal(exe.body, p.stripped) || exe.Header.Get("X-DEBUGINFOD-SIZE") != fmt.Sprint(len(p.stripped)) || exe.Header.Get("X-DEBUGINFOD-FILE") != "/usr/bin/prog" {
		t.Errorf("%d bytes, %v", len(exe.body), exe.Header)
	}
	if debug := ask(t, "GET", url+"/debuginfo", nil).want(t, 200); !bytes.Equal(debug.body, p.debug) {
		t.Errorf("%d bytes", len(debug.body))
	}
	if head := ask(t, "HEAD", url+"/executable", nil).want(t, 200); len(head.body) != 0 || head.ContentLength != int64(len(p.stripped)) {
		t.Errorf("HEAD: %d", head.ContentLength)
	}
	if part := ask(t, "GET", url+"/executable", nil, "Range", "bytes=100-199").want(t, 206); !bytes.Equal(part.body, p.stripped[100:200]) {
		t.Errorf("a range: %d bytes", len(part.body))
	}
	ask(t, "GET", url+"/executable", nil, "Range", fmt.Sprintf("bytes=%d-", len(p.stripped))).want(t, 416)
	ask(t, "GET", url+"/executable", nil, "If-None-Match", exe.Header.Get("ETag")).want(t, 304)
	upper := base + "/buildid/" + strings.ToUpper(p.id.String())
	ask(t, "GET", upper+"/executable", nil).want(t, 200)
	if a := ask(t, "GET", base+"/buildid/"+p.id.String()+"/source/etc/passwd", nil).want(t, 404); !strings.Contains(string(a.body), `\"/etc/passwd\"`) {
		t.Errorf("a source that there is not: %s", a.body)
	}
}

func TestRefusals(t *testing.T) {
	p := program(t)
	s, base := start(t, func(c *Config) { c.Store.MaxFile = 1 << 20 })
	other := strings.Repeat("ab", 20)
	if a := upload(t, base, p.stripped, "id="+other).want(t, 409); !bytes.Contains(a.body, []byte(other)) || !bytes.Contains(a.body, []byte(p.id.String())) {
		t.Errorf("not both: %s", a.body)
	}
	ask(t, "PUT", base+"/v1/files/"+strings.Repeat("0", 64), bytes.NewReader(p.stripped)).want(t, 409)
	ask(t, "PUT", base+"/v1/files/xyz", bytes.NewReader(p.stripped)).want(t, 400)
	upload(t, base, []byte("no ELF file"), "").want(t, 422)
	upload(t, base, p.stripped[:200], "").want(t, 422)
	upload(t, base, p.stripped[:len(p.stripped)-100], "").want(t, 422)
	upload(t, base, p.stripped[:len(p.stripped)/2], "").want(t, 422)
	upload(t, base, make([]byte, 1<<20+1), "").want(t, 413)
	upload(t, base, p.stripped, "", "Content-Encoding", "br").want(t, 415)
	upload(t, base, p.stripped, "", "Content-Encoding", "zstd").want(t, 400)
	ask(t, "GET", base+"/buildid/zz/executable", nil).want(t, 400)
	ask(t, "GET", base+"/buildid/go:x/executable", nil).want(t, 400)
	ask(t, "GET", base+"/buildid/"+other+"/nonsense", nil).want(t, 404)
	ask(t, "POST", base+"/buildid/"+other+"/executable", nil).want(t, 405)
	ask(t, "GET", base+"/metadata?key=x&value=y", nil).want(t, 400)
	ask(t, "POST", base+"/v1/plan", strings.NewReader("{")).want(t, 400)
	ask(t, "POST", base+"/v1/plan", strings.NewReader(strings.Repeat(" ", 3<<20))).want(t, 413)
	ask(t, "GET", base+"/nonsense", nil).want(t, 404)
	// A page in a browser that has the name of its server lead here.
	r := ask(t, "GET", base+"/", nil).want(t, 200).Request
	r.Host = "attacker.example"
	if resp, err := http.DefaultTransport.RoundTrip(r); err != nil || resp.StatusCode != 403 {
		t.Errorf("for another host: %v, %v", resp.StatusCode, err)
	}
	ask(t, "POST", base+"/v1/plan", strings.NewReader("{}"), "Origin", "http://attacker.example", "Sec-Fetch-Site", "cross-site").want(t, 403)
	if n := s.Store.Catalog().Len(); n != 0 {
		t.Errorf("%d identities", n)
	}
	// A bomb: 64 MiB of zeros in some bytes.
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "PUT", base+"/v1/files/"+strings.Repeat("0", 64), bytes.NewReader(z.EncodeAll(make([]byte, 64<<20), nil)), "Content-Encoding", "zstd").want(t, 413)
}

func TestPlan(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	upload(t, base, p.stripped, "").want(t, 201)
	plan := api.Plan{Files: []api.PlanFile{
		{ID: p.id, SHA256: hashHex(p.stripped), Size: int64(len(p.stripped))},
		{ID: p.id, SHA256: hashHex(p.debug), Size: int64(len(p.debug))},
		{SHA256: hashHex(p.debug)}, {ID: p.id, SHA256: "x"}, {ID: p.id, SHA256: hashHex(nil), Size: 1 << 60},
	}}
	b, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var out api.Planned
	if err := json.Unmarshal(ask(t, "POST", base+"/v1/plan", bytes.NewReader(b)).want(t, 200).body, &out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{api.Skip, api.Upload, api.Refuse, api.Refuse, api.Refuse} {
		if out.Files[i].Action != want {
			t.Errorf("file %d: %+v, want %s", i, out.Files[i], want)
		}
	}
}

// TestUnknownIsJSON asks for what no handler knows: people get text, and others JSON.
func TestUnknownIsJSON(t *testing.T) {
	_, base := start(t, nil)
	for _, c := range []struct {
		method, path, want string
		status             int
		header             []string
	}{
		{"GET", "/nothing", "no such path", 404, nil},
		{"GET", "/v1/nothing", "no such path", 404, nil},
		{"PUT", "/v1/plan", `\"PUT\" is not for this path, but POST`, 405, nil},
		{"POST", "/v1/plan", "from a page of another site", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"POST", "/v1/identities/1122/pin", "which nobody has at a server without tokens", 403, nil},
	} {
		a := ask(t, c.method, base+c.path, nil, c.header...).want(t, c.status)
		var e api.Error
		if err := json.Unmarshal(a.body, &e); err != nil || e.Status != c.status || !strings.Contains(string(a.body), c.want) {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
		if c.status == 405 && a.Header.Get("Allow") != "POST" {
			t.Errorf("%v", a.Header)
		}
	}
	if a := ask(t, "GET", base+"/nothing", nil, "Accept", "text/html").want(t, 404); !bytes.Contains(a.body, []byte("this server has no such path</p>")) {
		t.Errorf("%s", a.body)
	}
	ask(t, "GET", base+"/v1//search?q=x", nil).want(t, http.StatusTemporaryRedirect)
}

// TestParts sends a file in parts, cut short in between, and compressed.
func TestParts(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	sum := hashHex(p.full)
	url := base + "/v1/uploads/" + sum
	half := len(p.full) / 2
	ask(t, "PUT", fmt.Sprintf("%s/%d", url, half), bytes.NewReader(p.full[half:])).want(t, 409) // not the start
	for range 2 {
		ask(t, "PUT", url+"/0", bytes.NewReader(p.full[:half])).want(t, 204)
	}
	ask(t, "POST", url, nil).want(t, 409) // half of it is another file
	ask(t, "PUT", url+"/0", bytes.NewReader(p.full[:half])).want(t, 204)
	b, _ := json.Marshal(api.Plan{Files: []api.PlanFile{{ID: p.id, SHA256: sum, Size: int64(len(p.full))}}})
	var out api.Planned
	if err := json.Unmarshal(ask(t, "POST", base+"/v1/plan", bytes.NewReader(b)).want(t, 200).body, &out); err != nil || out.Files[0].Have != int64(half) {
		t.Fatalf("%+v, %v", out, err)
	}
	ask(t, "PUT", fmt.Sprintf("%s/%d", url, half), bytes.NewReader(p.full[half:])).want(t, 204)
	ask(t, "POST", url+"?id="+p.id.String(), nil).want(t, 201)
	if got := ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200); !bytes.Equal(got.body, p.full) {
		t.Errorf("%d bytes", len(got.body))
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "PUT", base+"/v1/files/"+hashHex(p.debug), bytes.NewReader(z.EncodeAll(p.debug, nil)), "Content-Encoding", "zstd").want(t, 201)
}

// elfutils starts elfutils' server over a directory and returns its URL.
func elfutils(t *testing.T, dir string, id buildid.ID) string {
	t.Helper()
	testenv.Tool(t, "debuginfod")
	return testenv.Debuginfod(t, dir, "/buildid/"+id.String()+"/executable", "/buildid/"+id.String()+"/debuginfo")
}

// TestBesideElfutils compares all answers with those of elfutils' server over the same files,
// with its own client.
func TestBesideElfutils(t *testing.T) {
	p := program(t)
	find := testenv.Tool(t, "debuginfod-find")
	dir := t.TempDir()
	for name, b := range map[string][]byte{"prog": p.stripped, "prog.debug": p.debug} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	theirs := elfutils(t, dir, p.id)
	_, ours := start(t, nil)
	_, through := start(t, func(c *Config) { // has nothing but what it asks theirs for
		c.Upstream = &debuginfod.Client{URLs: []string{theirs}, Dir: filepath.Join(t.TempDir(), "cache")}
	})
	upload(t, ours, p.stripped, "name="+url.QueryEscape(filepath.Join(dir, "prog"))).want(t, 201)
	upload(t, ours, p.debug, "name="+url.QueryEscape(filepath.Join(dir, "prog.debug"))).want(t, 201)
	source := filepath.Join(p.dir, "prog.c")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "PUT", ours+"/v1/sources/"+p.id.String()+"?path="+url.QueryEscape(source), bytes.NewReader(text)).want(t, 204)
	get := func(server string, args ...string) string {
		cmd := exec.Command(find, args...)
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+server, "DEBUGINFOD_CACHE_PATH="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			return "" // it says why on standard error
		}
		b, err := os.ReadFile(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		return hashHex(b)
	}
	id := p.id.String()
	found := 0
	for _, args := range [][]string{
		{"executable", id}, {"debuginfo", id}, {"source", id, source}, {"source", id, "/etc/passwd"}, {"source", id, filepath.Dir(source) + "/../" + filepath.Base(p.dir) + "/prog.c"},
		{"section", id, ".text"}, {"section", id, ".debug_info"}, {"section", id, ".debug_line"}, {"section", id, ".symtab"}, {"section", id, ".note.gnu.build-id"},
		{"section", id, ".bss"}, {"section", id, ".nonsense"}, {"section", id, ".dynsym"}, {"executable", strings.Repeat("ab", 20)},
	} {
		want, got := get(theirs, args...), get(ours, args...)
		if want != "" {
			found++
		}
		if got != want {
			t.Errorf("%v: %.8s, and %.8s of elfutils' server", args, got, want)
		}
		if got := get(through, args...); got != want {
			t.Errorf("%v: %.8s through a server that asks elfutils' server, which has %.8s", args, got, want)
		}
	}
	if found < 9 {
		t.Errorf("elfutils' server answered %d questions", found)
	}
	one, two := ask(t, "GET", theirs+"/buildid/"+id+"/executable", nil), ask(t, "GET", ours+"/buildid/"+id+"/executable", nil)
	for _, name := range []string{"X-Debuginfod-Size", "X-Debuginfod-File", "X-Debuginfod-Archive", "Content-Type"} {
		a, b := one.Header.Get(name), two.Header.Get(name)
		if name == "X-Debuginfod-File" && !strings.Contains(a, "/") { // as elfutils 0.188 has it
			b = filepath.Base(b)
		}
		if a != b {
			t.Errorf("%s: %q, and %q here", name, a, b)
		}
	}
}

// addressOf returns the address of a function, as nm says it.
func addressOf(t *testing.T, p built, name string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nm"), filepath.Join(p.dir, "full")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == name {
			return "0x" + f[0]
		}
	}
	t.Fatal("no such function")
	return ""
}

// TestTools has debuggers get what they need from the server alone.
func TestTools(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	upload(t, base, p.debug, "").want(t, 201)
	alone := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(alone, p.stripped, 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(p.dir, "prog.c")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "PUT", base+"/v1/sources/"+p.id.String()+"?path="+url.QueryEscape(source), bytes.NewReader(text)).want(t, 204)
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"prog.c", []string{"gdb", "-nx", "-batch", "-iex", "set debuginfod enabled on", "-ex", "info line f", alone}},
		{"prog.c:2", []string{"eu-addr2line", "-e", alone, addressOf(t, p, "f")}},
	} {
		cmd := exec.Command(testenv.Tool(t, tt.args[0]), tt.args[1:]...)
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+base, "DEBUGINFOD_CACHE_PATH="+t.TempDir(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v: %v: %s", tt.args, err, out)
		}
	}
}

// TestUpstream counts what a server asks its upstream server for.
func TestUpstream(t *testing.T) {
	p := program(t)
	_, first := start(t, nil)
	upload(t, first, p.debug, "").want(t, 201)
	var mu sync.Mutex
	asked := map[string]int{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		if r.Header.Get("X-Forwarded-For") == "" {
			t.Error("no hops")
		}
		time.Sleep(50 * time.Millisecond) // so that others ask meanwhile
		resp, err := http.Get(first + r.URL.Path)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	defer proxy.Close()
	s, base := start(t, func(c *Config) {
		c.Upstream = &debuginfod.Client{URLs: []string{proxy.URL}, Dir: filepath.Join(t.TempDir(), "cache")}
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := ask(t, "GET", base+"/buildid/"+p.id.String()+"/debuginfo", nil).want(t, 200); !bytes.Equal(got.body, p.debug) {
				t.Errorf("%d bytes", len(got.body))
			}
			ask(t, "GET", base+"/buildid/"+strings.Repeat("ab", 20)+"/debuginfo", nil).want(t, 404)
		})
	}
	wg.Wait()
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/debuginfo", nil).want(t, 200)
	for path, n := range asked {
		if n != 1 {
			t.Errorf("%s: asked %d times", path, n)
		}
	}
	if len(asked) != 2 {
		t.Errorf("asked: %v", asked)
	}
	m, err := s.Store.Manifest(t.Context(), p.id)
	if err != nil || m.DebugInfo().Trust() != store.Upstream {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestUpstreamSources counts which sources a server asks its upstream server for.
func TestUpstreamSources(t *testing.T) {
	p := program(t)
	_, first := start(t, nil)
	upload(t, first, p.debug, "").want(t, 201)
	id := p.id.String()
	for name, text := range map[string]string{"/src/a b?.c": "one", "/src/empty.h": ""} {
		ask(t, "PUT", first+"/v1/sources/"+id+"?path="+url.QueryEscape(name), strings.NewReader(text)).want(t, 204)
	}
	var mu sync.Mutex
	asked := map[string]int{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.RequestURI]++
		mu.Unlock()
		resp, err := http.Get(first + r.RequestURI)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	defer proxy.Close()
	s, base := start(t, func(c *Config) {
		c.Upstream = &debuginfod.Client{URLs: []string{proxy.URL}, Dir: filepath.Join(t.TempDir(), "cache")}
	})
	sources := base + "/buildid/" + id + "/source"
	for range 3 {
		got := ask(t, "GET", sources+"/src/a%20b%3F.c", nil).want(t, 200)
		if string(got.body) != "one" || got.Header.Get("X-DEBUGINFOD-FILE") != "/src/a b?.c" {
			t.Errorf("%q, %v", got.body, got.Header)
		}
		if got := ask(t, "GET", sources+"/src/empty.h", nil).want(t, 200); len(got.body) != 0 {
			t.Errorf("%q", got.body)
		}
		ask(t, "GET", sources+"/src/none.c", nil).want(t, 404)
		ask(t, "GET", sources+"/..%2f..%2f../../metrics", nil).want(t, 404)
		ask(t, "GET", base+"/buildid/"+strings.Repeat("ab", 20)+"/source/src/a.c", nil).want(t, 404)
	}
	for path, n := range asked {
		if n != 1 || !strings.HasPrefix(path, "/buildid/") || strings.Contains(path, "..") {
			t.Errorf("%s: asked %d times", path, n)
		}
	}
	m, err := s.Store.Manifest(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Store.Source(t.Context(), m, "/src/a b?.c"); err != nil || f.Origin.Trust != store.Upstream || f.Origin.Via != "upstream" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestUpstreamMisses asks for what nobody has. It takes no disk, as whoever asks chooses it.
func TestUpstreamMisses(t *testing.T) {
	_, first := start(t, nil)
	cache := filepath.Join(t.TempDir(), "cache")
	_, base := start(t, func(c *Config) {
		c.Upstream = &debuginfod.Client{URLs: []string{first}, Dir: cache, MissTime: time.Minute}
	})
	for i := range 20 {
		ask(t, "GET", fmt.Sprintf("%s/buildid/%040x/debuginfo", base, i), nil).want(t, 404)
		ask(t, "GET", fmt.Sprintf("%s/buildid/%040x/source/a.c", base, i), nil).want(t, 404)
	}
	files, err := os.ReadDir(cache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() {
			t.Errorf("%s is in the cache", f.Name())
		}
	}
}

// TestCircle has two servers that are upstream of each other.
func TestCircle(t *testing.T) {
	var one, two *Server
	front := func(s **Server) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s).ServeHTTP(w, r) }))
	}
	a, b := front(&one), front(&two)
	defer a.Close()
	defer b.Close()
	client := func(url string) func(*Config) {
		return func(c *Config) {
			c.Upstream = &debuginfod.Client{URLs: []string{url}, Dir: filepath.Join(t.TempDir(), "cache")}
		}
	}
	one, _ = start(t, client(b.URL))
	two, _ = start(t, client(a.URL))
	ask(t, "GET", a.URL+"/buildid/"+strings.Repeat("ab", 20)+"/debuginfo", nil).want(t, 404)
}

// TestHops has somebody claim that a question came through so many servers that one on the way gives up.
func TestHops(t *testing.T) {
	p := program(t)
	_, last := start(t, nil)
	upload(t, last, p.debug, "").want(t, 201)
	behind := func(url string) string {
		_, base := start(t, func(c *Config) {
			c.Upstream = &debuginfod.Client{URLs: []string{url}, Dir: filepath.Join(t.TempDir(), "cache"), MissTime: time.Minute}
		})
		return base
	}
	file := behind(behind(last)) + "/buildid/" + p.id.String() + "/debuginfo"
	ask(t, "GET", file, nil, "X-Forwarded-For", "1, 2, 3, 4, 5, 6, 7, 8").want(t, 404)
	ask(t, "GET", file, nil).want(t, 200)
}

func TestMetadata(t *testing.T) {
	p := program(t)
	s, base := start(t, nil)
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, 201)
	upload(t, base, p.debug, "name=/usr/lib/debug/x.debug&archive=prog-dbg.deb").want(t, 201)
	type result struct {
		Results  []entry
		Complete bool
	}
	search := func(key, value string) (r result) {
		t.Helper()
		a := ask(t, "GET", base+"/metadata?key="+key+"&value="+url.QueryEscape(value), nil).want(t, 200)
		if err := json.Unmarshal(a.body, &r); err != nil || !r.Complete {
			t.Errorf("%s, %v", a.body, err)
		}
		return r
	}
	if r := search("file", "/usr/bin/prog"); len(r.Results) != 1 || r.Results[0] != (entry{"executable", p.id.String(), "/usr/bin/prog", ""}) {
		t.Errorf("%+v", r)
	}
	if r := search("glob", "/usr/lib/*/*.debug"); len(r.Results) != 1 || r.Results[0].Archive != "prog-dbg.deb" || r.Results[0].Type != "debuginfo" {
		t.Errorf("%+v", r)
	}
	if r := search("buildid", p.id.String()); len(r.Results) != 2 {
		t.Errorf("%+v", r)
	}
	if r := search("file", "/none"); len(r.Results) != 0 {
		t.Errorf("%+v", r)
	}
	// Another server over the same store knows it, too.
	again := New(Config{Store: &store.Store{Blobs: s.Store.Blobs}})
	if err := again.Load(t.Context()); err != nil || again.Store.Catalog().Len() != 1 {
		t.Errorf("%d, %v", again.Store.Catalog().Len(), err)
	}
}

// TestFollow has two servers over one store: each finds what the other one took, and nothing of what it removed, and reads
// no manifest again that is as it was.
func TestFollow(t *testing.T) {
	p := program(t)
	var blobs *askedStore
	s, base := start(t, func(c *Config) {
		blobs = &askedStore{Store: c.Store.Blobs}
		c.Store.Blobs = blobs
	})
	other := New(Config{Store: &store.Store{Blobs: blobs}})
	other.missing.note("", p.id, "")
	const root = 1 // read each time
	look := func(identities int64, reads int64) {
		t.Helper()
		blobs.gets.Store(0)
		if err := other.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, got := other.Store.Catalog().Len(), blobs.gets.Load(); n != identities || got != root+reads || !other.Store.Catalog().Complete() {
			t.Errorf("%d identities after %d reads, want %d after %d", n, got, identities, root+reads)
		}
	}
	look(0, 0)
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, 201)
	look(1, 2) // the intent and the manifest
	if list := other.missing.list(); len(list) != 0 {
		t.Errorf("it is missing still: %v", list)
	}
	look(1, 0)
	upload(t, base, p.debug, "name=/usr/lib/debug/prog.debug").want(t, 201)
	look(1, 2)
	if err := s.Store.Pin(t.Context(), p.id, true); err != nil { // which is nothing that is searched
		t.Fatal(err)
	}
	look(1, 0)
	days := int64(1)
	old := &store.Store{Blobs: blobs, Now: func() time.Time { return time.Now().AddDate(0, 0, int(days)) }}
	if err := s.Store.Pin(t.Context(), p.id, false); err != nil {
		t.Fatal(err)
	}
	if c, err := old.Collect(t.Context(), store.Collection{Retention: store.Retention{Age: time.Hour}}); err != nil || c.Removed != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	look(0, 2)
	if _, ok := other.Store.Catalog().Entry(p.id); ok {
		t.Error("what is gone is found")
	}
}

// TestMetadataTime asks for names by patterns that take long to compare, while files come.
func TestMetadataTime(t *testing.T) {
	const names = 20_000 // which take twenty times as long as a search may
	long := func(i int) *store.Manifest {
		m := numbered(t, i)
		m.Files[0].Origins[0].Path = "/" + strings.Repeat("a", 1000)
		return m
	}
	blobs := &blobtest.Memory{}
	for i := range names {
		putManifest(t, blobs, long(i))
	}
	s, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
	slow := "/*" + strings.Repeat("[a-b]", 190) + "c*"
	ask(t, "GET", base+"/metadata?key=glob&value="+url.QueryEscape(slow+strings.Repeat("[a-b]", 8000)), nil).want(t, 400)
	done := make(chan bool)
	go func() {
		_, complete := searchNames(t.Context(), s.Store.Catalog(), "glob", slow)
		done <- complete
	}()
	for i := names; ; i++ {
		select {
		case complete := <-done:
			if complete {
				t.Error("the search is complete")
			}
			if i-names < 5 { // it waits for none, and they do not wait for it
				t.Errorf("%d files came during a search", i-names)
			}
			return
		default:
		}
		putManifest(t, blobs, long(i))
		if _, err := s.Store.Manifest(t.Context(), numberedID(t, i)); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestHealth(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	ask(t, "GET", base+"/healthz", nil).want(t, 200)
	ask(t, "GET", base+"/readyz", nil).want(t, 200)
	upload(t, base, p.stripped, "").want(t, 201)
	a := ask(t, "GET", base+"/metrics", nil).want(t, 200)
	for _, want := range []string{`hallmark_files_added_total{via="push"} 1`, `hallmark_requests_total{kind="upload",status="201"} 1`, "hallmark_identities 1"} {
		if !strings.Contains(string(a.body), want+"\n") {
			t.Errorf("%q is not in\n%s", want, a.body)
		}
	}
	var identity api.Identity
	if err := json.Unmarshal(ask(t, "GET", base+"/v1/identities/"+p.id.String(), nil).want(t, 200).body, &identity); err != nil || identity.ID != p.id || len(identity.Files) != 1 {
		t.Errorf("%+v, %v", identity, err)
	}
}

// askedStore counts how often it is asked for objects, and can be down.
type askedStore struct {
	blob.Store
	gets atomic.Int64
	down atomic.Bool
}

func (a *askedStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	a.gets.Add(1)
	if a.down.Load() {
		return nil, blob.Info{}, blob.ErrUnavailable
	}
	return a.Store.Get(ctx, key, off, n)
}

// TestReadyTogether has many ask whether the server is ready: the store is asked once.
func TestReadyTogether(t *testing.T) {
	var asked *askedStore
	s, base := start(t, func(c *Config) {
		asked = &askedStore{Store: c.Store.Blobs}
		c.Store.Blobs = asked
	})
	again := func() { // as if a long time had passed
		s.readiness.mu.Lock()
		defer s.readiness.mu.Unlock()
		s.readiness.until = time.Time{}
	}
	asked.gets.Store(0)
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() { ask(t, "GET", base+"/readyz", nil).want(t, 200) })
	}
	running.Wait()
	if n := asked.gets.Load(); n < 1 || n > 10 { // one, unless the machine is so slow that seconds pass
		t.Errorf("the store was asked %d times", n)
	}
	asked.down.Store(true)
	again()
	ask(t, "GET", base+"/readyz", nil).want(t, 503)
	asked.down.Store(false)
	again()
	ask(t, "GET", base+"/readyz", nil).want(t, 200)
}

// TestGoneStore has somebody remove the directory of a store: the server does not say that it has no such file.
func TestGoneStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	blobs, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	_, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", base+"/readyz", nil).want(t, 503)
	ask(t, "GET", base+"/buildid/"+strings.Repeat("ab", 20)+"/executable", nil).want(t, 503)
}

func TestTokens(t *testing.T) {
	p := program(t)
	file := filepath.Join(t.TempDir(), "tokens")
	secrets := map[string]string{}
	var tokens []Token
	for name, roles := range map[string][]Role{"reader": {Read}, "ci": {UploadCI}, "agent": {Read, UploadAgent}, "admin": {Admin}} {
		token, secret := NewToken(name, roles, time.Now().Add(time.Hour))
		tokens, secrets[name] = append(tokens, token), secret
	}
	old, oldSecret := NewToken("old", []Role{Admin}, time.Now().Add(-time.Hour))
	if err := WriteTokens(file, append(tokens, old)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || bytes.Contains(b, []byte(secrets["admin"])) {
		t.Errorf("the file has a secret: %v", err)
	}
	_, base := start(t, func(c *Config) { c.Tokens = file })
	url := base + "/buildid/" + p.id.String() + "/executable"
	auth := func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
	if a := ask(t, "GET", url, nil).want(t, 401); a.Header.Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
	ask(t, "GET", url, nil, "Authorization", "Bearer "+oldSecret).want(t, 401)
	ask(t, "GET", url, nil, "Authorization", "Bearer nonsense").want(t, 401)
	ask(t, "GET", url, nil, auth("ci")...).want(t, 403)
	ask(t, "GET", url, nil, auth("reader")...).want(t, 404)
	upload(t, base, p.full, "", auth("reader")...).want(t, 403)
	upload(t, base, p.full, "", auth("agent")...).want(t, 201)
	upload(t, base, p.stripped, "", auth("ci")...).want(t, 201)
	// What the agent sent knows more, and does not take the place of what CI sent.
	if a := ask(t, "GET", url, nil, auth("admin")...).want(t, 200); !bytes.Equal(a.body, p.stripped) {
		t.Errorf("the agent's file is served: %d bytes", len(a.body))
	}
	pin := base + "/v1/identities/" + p.id.String() + "/pin"
	ask(t, "POST", pin, nil, auth("ci")...).want(t, 403)
	ask(t, "POST", pin, nil, auth("admin")...).want(t, 204)
}

func TestReadOnly(t *testing.T) {
	p := program(t)
	_, base := start(t, func(c *Config) { c.ReadOnly = true })
	upload(t, base, p.stripped, "").want(t, 403)
}

// TestUpstreamFails has an upstream server fail: the log has its URL and why, metrics and health name it, and nobody sees its
// password.
func TestUpstreamFails(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }))
	defer broken.Close()
	shut := httptest.NewServer(http.NotFoundHandler())
	shut.Close()
	with := func(url string) string { return strings.Replace(url, "://", "://user7:secret7@", 1) }
	var log lockedBuffer
	_, base := start(t, func(c *Config) {
		c.Upstream = &debuginfod.Client{URLs: []string{with(broken.URL), with(shut.URL)}, Dir: filepath.Join(t.TempDir(), "cache")}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	answer := string(ask(t, "GET", base+"/buildid/"+strings.Repeat("ab", 20)+"/debuginfo", nil).want(t, 503).body)
	metrics := string(ask(t, "GET", base+"/metrics", nil).want(t, 200).body)
	health := string(ask(t, "GET", base+"/v1/health", nil).want(t, 200).body)
	for _, url := range []string{broken.URL, shut.URL} {
		if want := `hallmark_upstream_failures_total{server="` + url + `"} 1`; !strings.Contains(metrics, want) {
			t.Errorf("metrics without %s", want)
		}
		if want := `{"url":"` + url + `","resting":true}`; !strings.Contains(health, want) {
			t.Errorf("health without %s: %s", want, health)
		}
		if strings.Contains(answer, url) {
			t.Errorf("the answer names an upstream server: %s", answer)
		}
		if n := strings.Count(log.String(), url); n != 2 { // the first failure, and the request
			t.Errorf("%d times %s in the log", n, url)
		}
	}
	if !strings.Contains(log.String(), "500") || !strings.Contains(log.String(), "connection refused") {
		t.Error("the log has not the causes")
	}
	for _, text := range []string{answer, metrics, health, log.String()} {
		if strings.Contains(text, "secret7") || strings.Contains(text, "user7") {
			t.Errorf("credentials: %s", text)
		}
	}
}
