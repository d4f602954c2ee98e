package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/internal/testenv"
	"hallmark/server/store"
	"hallmark/server/symbols"
)

// TestSlots has many requests wait for the bytes of their clients, or for an index that another server makes:
// others that cost much are answered meanwhile.
func TestSlots(t *testing.T) {
	p := program(t)
	s, base := start(t, func(c *Config) {
		withSymbols(t)(c)
		c.Heavy = 2
	})
	upload(t, base, p.full, "").want(t, 201)
	m, err := s.Store.Manifest(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	lease := "leases/" + store.IndexKey(p.id, symbols.IndexVersion, "index-"+m.IndexName().With(store.DwzFile{}))
	text := fmt.Sprintf(`{"expires":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	if _, err := s.Store.Blobs.PutIfAbsent(t.Context(), lease, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	question := fmt.Sprintf(`{"files":[{"id":%q,"addresses":[1]}],"wait_seconds":100}`, p.id)
	for name, c := range map[string]struct {
		method, path, body string
		slow               bool
	}{
		"a question":  {"POST", "/v1/symbolize", "{", true},
		"a profile":   {"POST", "/v1/profiles", "a;b 5", true},
		"a rewriting": {"POST", "/v1/rewrite", "x", true},
		"a file":      {"PUT", "/v1/files/" + hashHex(p.stripped), "\x7fELF", true},
		"an index":    {"POST", "/v1/symbolize", question, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var ends []io.Closer
		for range 4 {
			var body io.Reader = strings.NewReader(c.body)
			if c.slow {
				r, w := io.Pipe()
				body = io.MultiReader(body, r)
				ends = append(ends, w)
			}
			running.Go(func() {
				r, err := http.NewRequestWithContext(ctx, c.method, base+c.path, body)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := http.DefaultClient.Do(r); err == nil {
					resp.Body.Close()
				}
			})
		}
		testenv.Await(t, "the requests", func() bool { return s.gates.known.inUse() == 4 })
		time.Sleep(50 * time.Millisecond) // in which they take the places that they want
		begun := time.Now()
		if a := ask(t, "GET", base+"/v1/functions?q=main", nil); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s after %v", name, a.StatusCode, a.body, time.Since(begun))
		}
		cancel()
		for _, end := range ends {
			end.Close()
		}
		running.Wait()
		testenv.Await(t, "the end of the requests", func() bool { return s.gates.known.inUse() == 0 })
		if heavy, files := s.heavy.inUse(), s.files.inUse(); heavy != 0 || files != 0 {
			t.Errorf("%s: %d and %d slots are not given back", name, heavy, files)
		}
	}
}
