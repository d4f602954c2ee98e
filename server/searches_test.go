package server

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

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
