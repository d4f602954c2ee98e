package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"hallmark/debuginfo/debuginfod"
	"hallmark/server/blob/blobtest"
	"hallmark/web"
)

// TestSearchesTakeTurns wants searches, which go through all names, to wait for work that costs much: else one client's would
// keep the processors from all others.
func TestSearchesTakeTurns(t *testing.T) {
	s, base := inMemory(t, 10)
	for _, path := range []string{"/metadata?key=glob&value=/*", "/v1/search?q=lib"} {
		var taken []*slot
		for range s.Heavy {
			slot, err := s.takeHeavy(t.Context(), "another")
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, slot)
		}
		status := make(chan int, 1)
		go func() {
			resp, err := http.Get(base + path)
			if err != nil {
				t.Error(err)
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		}()
		waits := false
		for !waits && len(status) == 0 {
			s.heavy.mu.Lock()
			waits = len(s.heavy.queue) > 0
			s.heavy.mu.Unlock()
			runtime.Gosched()
		}
		if !waits {
			t.Errorf("%s takes no turn", path)
		}
		for _, slot := range taken {
			slot.release()
		}
		if got := <-status; got != http.StatusOK {
			t.Errorf("%s: %d", path, got)
		}
	}
	if n := s.heavy.inUse(); n != 0 {
		t.Errorf("%d are not given back", n)
	}
}

// TestLargeAnswers wants the names in an answer to have a bound, and answers that nobody has read yet to be counted.
func TestLargeAnswers(t *testing.T) {
	blobs := &blobtest.Memory{}
	for i := range 3000 {
		m := numbered(t, i)
		m.Files[0].Origins[0].Path = "/" + strings.Repeat("\x01", 1000)
		m.Files[0].Origins[0].Archive = "/" + strings.Repeat("\x01", 1000)
		putManifest(t, blobs, m)
	}
	s, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
	const all = "/metadata?key=glob&value=/*"
	a := ask(t, "GET", base+all, nil).want(t, 200)
	var out struct {
		Results  []entry `json:"results"`
		Complete bool    `json:"complete"`
	}
	if err := json.Unmarshal(a.body, &out); err != nil || out.Complete || len(out.Results) < 1000 || len(a.body) > 6*maxResultText+200*len(out.Results) {
		t.Errorf("%d names in %d bytes, complete %t, %v", len(out.Results), len(a.body), out.Complete, err)
	}
	given := func() {
		for s.viewer.turns.unsent.inUse() > 0 {
			if t.Context().Err() != nil {
				t.Fatal("bytes are not given back")
			}
			runtime.Gosched()
		}
	}
	given()
	done, err := s.viewer.turns.unsent.try("another", web.MaxUnsent-smallAnswer)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", base+all, nil).want(t, 429)
	ask(t, "GET", base+"/v1/search?q=x&limit=1", nil).want(t, 200)
	done()
	ask(t, "GET", base+all, nil).want(t, 200)
	given()
}

// TestFewAsk has a client ask for names that an upstream server takes long to answer: few of its answers, of up to 16 MiB each,
// are in memory at a time. Meanwhile the requests keep nobody from work that costs much.
func TestFewAsk(t *testing.T) {
	entered, end := make(chan bool), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- true
		<-end
		io.WriteString(w, `{"results":[],"complete":true}`)
	}))
	defer up.Close()
	s, base := start(t, func(c *Config) {
		c.Heavy = 2
		c.Upstream = &debuginfod.Client{URLs: []string{up.URL}, Dir: filepath.Join(t.TempDir(), "cache")}
	})
	const requests = 5
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			resp, err := http.Get(fmt.Sprintf("%s/metadata?key=file&value=/%d", base, i))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%d: %s", i, resp.Status)
			}
		})
	}
	n := 0
	for waiting := 0; waiting+n < requests; {
		select {
		case <-entered:
			n++
		default:
			runtime.Gosched()
		}
		s.asks.mu.Lock()
		waiting = len(s.asks.queue)
		s.asks.mu.Unlock()
	}
	if n != s.Heavy {
		t.Errorf("%d questions at a time", n)
	}
	slot, err := s.takeHeavy(t.Context(), "another")
	if err != nil {
		t.Error(err)
	}
	slot.release()
	close(end)
	for ; n < requests; n++ {
		<-entered
	}
	all.Wait()
	if heavy, asks := s.heavy.inUse(), s.asks.inUse(); heavy+asks > 0 {
		t.Errorf("%d and %d places are not given back", heavy, asks)
	}
}
