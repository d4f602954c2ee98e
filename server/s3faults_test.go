package server

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/internal/testenv"
	"hallmark/server/blob/blobtest"
	"hallmark/server/blob/s3blob"
	"hallmark/server/client"
	"hallmark/server/store"
	"hallmark/server/symbols"
)

// faulty is what stands between a server and its bucket.
type faulty struct {
	next  http.Handler
	gone  atomic.Bool  // the bucket
	rate  atomic.Int64 // faults of 100 requests
	seed  uint64
	mu    sync.Mutex
	asked map[string]int // by request
	met   map[string]int
}

// choose returns the fault of a request, and how long it is slow. They depend on the seed, and on
// how often the same was asked before: not on which of several requests comes first.
func (f *faulty) choose(request string) (fault string, slow time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[request]++
	name := fnv.New64a()
	fmt.Fprint(name, request, f.asked[request])
	rng := rand.New(rand.NewPCG(f.seed, name.Sum64()))
	fault = "none"
	switch {
	case f.gone.Load():
		fault = "gone"
	case rng.Int64N(100) < f.rate.Load():
		fault = []string{"500", "503", "closed", "lost answer", "truncated", "slow"}[rng.IntN(6)]
	}
	f.met[fault]++
	return fault, time.Duration(rng.IntN(300)) * time.Millisecond
}

// A cut is an answer of which only a part arrives.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, slow := f.choose(r.Method + " " + r.URL.String())
	switch fault {
	case "gone":
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>`)
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "closed":
		panic(http.ErrAbortHandler)
	case "lost answer": // what was asked for is done, and nobody hears of it
		f.next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "truncated":
		f.next.ServeHTTP(&cut{w, 10}, r)
	case "slow":
		time.Sleep(slow)
		f.next.ServeHTTP(w, r)
	default:
		f.next.ServeHTTP(w, r)
	}
}

// overBucket returns the URL of a new server over a bucket.
func overBucket(t *testing.T, endpoint string) string {
	t.Helper()
	blobs, err := s3blob.Open("s3://bucket/prefix?region=us-east-1&endpoint="+endpoint, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if err := blobs.MakeBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}}
	c.Symbols = &symbols.Indexes{Store: c.Store, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Lease: 2 * time.Second}
	s := New(c)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { srv.Close(); c.Store.Close() })
	return srv.URL
}

// TestFaultsOfS3 has two servers over a bucket that fails in each way, and is gone for a while. Meanwhile the servers serve
// right bytes or refuse with a status that says why, and a server that comes later has all that was acknowledged.
func TestFaultsOfS3(t *testing.T) {
	p := program(t)
	at, err := strconv.ParseUint(addressOf(t, p, "f"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := blobtest.StartS3(t)
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	seed := testenv.Seed(t)
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f := &faulty{next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }, ErrorLog: quiet}, seed: seed, asked: map[string]int{}, met: map[string]int{}}
	proxy := httptest.NewUnstartedServer(f)
	proxy.Config.ErrorLog = quiet
	proxy.Start()
	defer proxy.Close()
	servers := []string{overBucket(t, proxy.URL), overBucket(t, proxy.URL)}

	rng := rand.New(rand.NewPCG(seed, 0))
	var files []*sent
	for range 60 {
		c := copyOf(p, rng)
		files = append(files, &c)
	}
	var refused, wrong sync.Map
	f.rate.Store(15)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w+1)))
			for i := w; i < len(files); i += 4 {
				file, base := files[i], servers[i%2]
				for range 6 {
					if file.send(base, i%3 == 0); file.acknowledged {
						break
					}
				}
				if c, err := client.New(base, ""); err == nil && i%5 == 0 {
					c.Retries, c.Patience = 1, 10*time.Second
					_, _ = c.Symbolize(t.Context(), question(file.id, at))
				}
				other := files[max(0, i-rng.IntN(8))] // which may be on its way
				resp, err := http.Get(servers[rng.IntN(2)] + "/buildid/" + other.id.String() + "/executable")
				if err != nil {
					continue
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				switch {
				case err == nil && resp.StatusCode == http.StatusOK && !bytes.Equal(body, other.bytes):
					wrong.Store(other.id.String(), len(body))
				case resp.StatusCode != http.StatusOK:
					refused.Store(resp.StatusCode, string(body))
				}
			}
		})
	}
	all.Wait()
	wrong.Range(func(id, n any) bool { t.Errorf("%v: %d bytes that nobody sent", id, n); return true })
	refused.Range(func(status, text any) bool {
		if status != http.StatusNotFound && status != http.StatusServiceUnavailable && status != http.StatusBadGateway {
			t.Errorf("an answer with the status %v: %.300s", status, text)
		}
		return true
	})
	f.rate.Store(0)
	f.gone.Store(true)
	fresh := copyOf(p, rng)
	if got := status("PUT", servers[0]+"/v1/files/"+hashHex(fresh.bytes), fresh.bytes); got != http.StatusServiceUnavailable {
		t.Errorf("an upload without a bucket: %d", got)
	}
	if got := ask(t, "GET", servers[0]+"/buildid/"+fresh.id.String()+"/executable", nil); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an identity that nobody can look for without a bucket: %d %s", got.StatusCode, got.body)
	}
	if got := ask(t, "GET", servers[0]+"/readyz", nil); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("ready without a bucket: %d %s", got.StatusCode, got.body)
	}
	f.gone.Store(false)
	time.Sleep(3 * time.Second) // servers believe for two that what they do not have nobody has
	later := overBucket(t, endpoint)
	checkSearch(t, later, files)
	for name, base := range map[string]string{"that was there": servers[0], "that comes later": later} {
		acknowledged, served := checkAll(t, base, files, at, true)
		t.Logf("the server %s: %d of %d files were acknowledged, %d are served", name, acknowledged, len(files), served)
	}
	t.Log(f.met)
	if len(f.met) < 8 { // and none
		testenv.Lack(t, "not each fault came: %v", f.met)
	}
}
