package debuginfod

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.Isolated(m), goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("internal/poll.runtime_pollWait"))
}

// example returns a file with a build ID, and its content.
func example(t *testing.T) (buildid.ID, []byte) {
	t.Helper()
	const name = "/bin/true"
	info, err := buildid.ReadFile(name)
	testenv.Need(t, err == nil && info.ID.Kind() == buildid.GNU, name+" with a build ID")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID, b
}

// serve starts a server and returns a Client of it, and how many requests it got.
func serve(t *testing.T, handle http.HandlerFunc) (*Client, *atomic.Int64) {
	t.Helper()
	requests := new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	c := &Client{URLs: []string{s.URL}, Dir: filepath.Join(t.TempDir(), "cache")}
	t.Cleanup(func() {
		if c.http != nil {
			c.http.CloseIdleConnections()
		}
	})
	return c, requests
}

// onlyFiles checks that nothing half-written is left in the cache.
func onlyFiles(t *testing.T, c *Client, id buildid.ID, want ...string) {
	t.Helper()
	entries, _ := os.ReadDir(filepath.Join(c.Dir, id.String()))
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(want, " ") {
		t.Errorf("the cache has %q, want %q", have, want)
	}
}

func TestFetch(t *testing.T) {
	id, content := example(t)
	var last atomic.Int64
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/buildid/"+id.String()+"/executable" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content)
	})
	c.Progress = func(_ buildid.ID, _ File, n, size int64) {
		if size != int64(len(content)) {
			t.Errorf("size is %d, want %d", size, len(content))
		}
		last.Store(n)
	}
	for range 2 {
		path, err := c.Fetch(t.Context(), id, Executable)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(content) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if requests.Load() != 1 || last.Load() != int64(len(content)) {
		t.Errorf("%d requests, progress to %d of %d", requests.Load(), last.Load(), len(content))
	}
	onlyFiles(t, c, id, "executable")
}

// TestUnpacked fetches what a server packs as it is sent.
func TestUnpacked(t *testing.T) {
	id, content := example(t)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(content)
		z.Close()
	})
	path, err := c.Fetch(t.Context(), id, DebugInfo)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestNobodyHasIt asks once, and not again until the cache forgets.
func TestNobodyHasIt(t *testing.T) {
	id, _ := example(t)
	c, requests := serve(t, http.NotFound)
	for range 3 {
		if _, err := c.Fetch(t.Context(), id, DebugInfo); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(c.Dir, id.String(), "debuginfo"), old, old); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Fetch(t.Context(), id, DebugInfo); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("%d requests after it was forgotten", requests.Load())
	}
}

// TestBadAnswers wants nothing of them in the cache, and the reason reported.
func TestBadAnswers(t *testing.T) {
	id, content := example(t)
	other, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	cut := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "100000")
		w.Write(content[:1000])
	}
	for name, tt := range map[string]struct {
		answer   func(http.ResponseWriter)
		want     string
		requests int64
	}{
		"another file": {func(w http.ResponseWriter) { w.Write(other) }, "another file", 1},
		"no ELF file":  {func(w http.ResponseWriter) { io.WriteString(w, "<html>") }, "no ELF file", 1},
		"nothing":      {func(w http.ResponseWriter) {}, "another file: content", 1},
		"cut off":      {cut, "unexpected EOF", 3},
		"busy":         {func(w http.ResponseWriter) { w.WriteHeader(503) }, "503", 3},
		"forbidden":    {func(w http.ResponseWriter) { w.WriteHeader(403) }, "403", 1},
		"large":        {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "9999999"); w.Write(content) }, "above the limit", 1},
		"large in truth": {func(w http.ResponseWriter) {
			w.Header().Set("X-DEBUGINFOD-SIZE", "9")
			io.WriteString(w, elfMagic)
			w.Write(make([]byte, 3<<20))
		}, "more than the limit", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) { tt.answer(w) })
			c.MaxSize, c.Retries = 2<<20, 2
			_, err := c.Fetch(t.Context(), id, DebugInfo)
			var e *Error
			if !errors.As(err, &e) || e.URL != c.URLs[0] || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), c.Dir) {
				t.Errorf("%v names a temporary file", err)
			}
			if requests.Load() != tt.requests {
				t.Errorf("%d requests, want %d", requests.Load(), tt.requests)
			}
			onlyFiles(t, c, id)
		})
	}
}

// TestItPasses has a server fail twice and answer then.
func TestItPasses(t *testing.T) {
	id, content := example(t)
	var n atomic.Int64
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= 2 {
			w.WriteHeader(500)
			return
		}
		w.Write(content)
	})
	c.Retries = 2
	if _, err := c.Fetch(t.Context(), id, DebugInfo); err != nil {
		t.Error(err)
	}
}

// TestOneDownloadForMany has many ask for one file at a time.
func TestOneDownloadForMany(t *testing.T) {
	id, content := example(t)
	go1 := make(chan struct{})
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-go1
		w.Write(content)
	})
	var askers sync.WaitGroup
	for i := range 50 {
		askers.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 { // half of them lose patience
				cancel()
			}
			_, err := c.Fetch(ctx, id, DebugInfo)
			if i%2 == 1 && err != nil || i%2 == 0 && err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for requests.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(go1)
	askers.Wait()
	// Who came after all others had lost patience began anew.
	if n := requests.Load(); n > 26 {
		t.Errorf("%d requests", n)
	}
	if len(c.calls) != 0 {
		t.Errorf("%d calls are left", len(c.calls))
	}
}

// TestAbandoned ends a download that nobody waits for any more.
func TestAbandoned(t *testing.T) {
	id, _ := example(t)
	started, ended := make(chan struct{}), make(chan struct{})
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := c.Fetch(ctx, id, DebugInfo); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
}

// TestDeadServer asks a server that accepts and never answers for many files: it
// costs its timeout once, and those who have it are asked all the same.
func TestDeadServer(t *testing.T) {
	id, content := example(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, id.String()) {
			w.Write(content)
			return
		}
		http.NotFound(w, r)
	})
	c.URLs = append([]string{"http://" + l.Addr().String()}, c.URLs...)
	c.Timeout, c.Retries = 200*time.Millisecond, 5
	for i := range 100 {
		other, err := buildid.New(buildid.GNU, []byte{byte(i), 1, 2, 3, 4, 5, 6, 7})
		if err != nil {
			t.Fatal(err)
		}
		// Whether the dead one has it nobody knows, so this is no miss to remember.
		if _, err := c.Fetch(t.Context(), other, DebugInfo); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := c.Fetch(t.Context(), id, DebugInfo); err != nil {
		t.Error(err)
	}
	if s := c.servers[0]; s.failures != 1 || requests.Load() != 101 {
		t.Errorf("%d failures of the dead server, %d requests to the other", s.failures, requests.Load())
	}
}

// TestSilentServer sends a part and then nothing.
func TestSilentServer(t *testing.T) {
	id, content := example(t)
	done := make(chan struct{})
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(content[:5000])
		w.(http.Flusher).Flush()
		<-done
	})
	defer close(done)
	c.Timeout, c.Retries = 200*time.Millisecond, 3
	_, err := c.Fetch(t.Context(), id, DebugInfo)
	if err == nil || !strings.Contains(err.Error(), "sent nothing for 200ms") || requests.Load() != 1 {
		t.Errorf("error %v after %d requests", err, requests.Load())
	}
}

// TestTooLong bounds a server that sends forever.
func TestTooLong(t *testing.T) {
	id, content := example(t)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write(content[:100])
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	c.MaxTime = 300 * time.Millisecond
	_, err := c.Fetch(t.Context(), id, DebugInfo)
	if err == nil || !strings.Contains(err.Error(), "takes longer than 300ms") {
		t.Error(err)
	}
}

// TestRest is how long a server is left alone.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, broken := &server{}, errors.New("broken")
		for _, rest := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
			if err := s.down(time.Now()); err != nil {
				t.Error(err)
			}
			s.failed(time.Now(), broken)
			s.failed(time.Now(), broken) // of another request at the same time
			time.Sleep(rest - time.Nanosecond)
			if err := s.down(time.Now()); !errors.Is(err, broken) {
				t.Errorf("asked again before %v were over", rest)
			}
			time.Sleep(time.Nanosecond)
		}
		s.answered()
		s.failed(time.Now(), broken)
		time.Sleep(30 * time.Second)
		if err := s.down(time.Now()); err != nil {
			t.Error("not forgiven")
		}
	})
}

func TestNobodyToAsk(t *testing.T) {
	id, _ := example(t)
	for _, c := range []*Client{{}, {URLs: []string{"http://127.0.0.1:1"}}, {Dir: t.TempDir()}} {
		if _, err := c.Fetch(t.Context(), id, DebugInfo); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	htl, err := buildid.Hash(strings.NewReader("text"), 4)
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{URLs: []string{"http://127.0.0.1:1"}, Dir: t.TempDir()}
	if _, err := c.Fetch(t.Context(), htl, DebugInfo); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// TestSource fetches source files, whose paths are others' and which have no identity.
func TestSource(t *testing.T) {
	id, _ := example(t)
	var paths []string
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.RequestURI)
		switch r.URL.Path {
		case "/buildid/" + id.String() + "/source/src/#a.c":
			io.WriteString(w, "int a;\n")
		case "/buildid/" + id.String() + "/source/src/long.c":
			w.Header().Set("X-DEBUGINFOD-SIZE", strconv.Itoa(maxSource+1))
		default:
			http.NotFound(w, r)
		}
	})
	for range 2 {
		path, err := c.Fetch(t.Context(), id, Source("/src/../../src/#a.c"))
		if b, _ := os.ReadFile(path); err != nil || string(b) != "int a;\n" || filepath.Dir(path) != filepath.Join(c.Dir, id.String()) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if _, err := c.Fetch(t.Context(), id, Source("/src/long.c")); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a long file: %v", err)
	}
	defer func(n int) { maxMisses = n }(maxMisses)
	maxMisses = 100
	want := requests.Load()
	for i := range maxMisses + 10 {
		if _, err := c.Fetch(t.Context(), id, Source(fmt.Sprintf("/src/%d.c", i))); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		want++
	}
	if _, err := c.Fetch(t.Context(), id, Source(fmt.Sprintf("/src/%d.c", maxMisses+9))); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if got := requests.Load(); got != want || len(c.misses) > maxMisses {
		t.Errorf("%d requests, want %d; %d misses are remembered", got, want, len(c.misses))
	}
	onlyFiles(t, c, id, Source("/src/#a.c").inCache())
	if paths[0] != "/buildid/"+id.String()+"/source/src/%23a.c" {
		t.Errorf("asked for %s", paths[0])
	}
}

// TestSameHost has a server redirect to another one, which is followed where it is named.
func TestSameHost(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked++; http.NotFound(w, r) }))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
	}))
	defer first.Close()
	id, err := buildid.New(buildid.GNU, bytes.Repeat([]byte{0xab}, 20))
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(other.URL, "http://")
	for _, c := range []struct {
		hosts []string
		asked int
	}{{nil, 0}, {[]string{"127.0.0.1"}, 0}, {[]string{"elsewhere", host}, 1}} {
		asked = 0
		client := &Client{URLs: []string{first.URL}, Dir: t.TempDir(), SameHost: true, RedirectHosts: c.hosts}
		_, err := client.Fetch(t.Context(), id, DebugInfo)
		if asked != c.asked || (c.asked == 0) != (err != nil && strings.Contains(err.Error(), "redirects to "+host)) {
			t.Errorf("%q: %d questions, %v", c.hosts, asked, err)
		}
	}
}
