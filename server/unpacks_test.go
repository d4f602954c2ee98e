package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/server/store"
)

// packedLocal is a machine with a package for each identity, which takes until somebody says so to be read.
type packedLocal struct {
	entered chan buildid.ID
	end     chan struct{}
}

func (p packedLocal) Pending(context.Context, buildid.ID) (bool, error) { return true, nil }
func (p packedLocal) Publish(_ context.Context, id buildid.ID, _ bool, _ func(*store.Arriving)) (bool, error) {
	p.entered <- id
	<-p.end
	return false, nil
}
func (p packedLocal) Source(context.Context, *store.Manifest, string, func() (func(), error)) (io.ReadCloser, store.Origin, bool, error) {
	return nil, store.Origin{}, false, nil
}
func (p packedLocal) Names(buildid.ID, func(string, buildid.ID, string, string) bool) bool {
	return true
}
func (p packedLocal) Counts() (packages, identities int64) { return 0, 0 }

// TestUnpacks has a client ask for files of many packages at once: few are read at a time, as each may take 128 MiB, and the
// next one is that of another client. What somebody reads already counts once.
func TestUnpacks(t *testing.T) {
	local := packedLocal{make(chan buildid.ID), make(chan struct{})}
	var tokens []Token
	secrets := map[string]string{}
	for _, name := range []string{"greedy", "other"} {
		token, secret := NewToken(name, []Role{Read}, time.Time{})
		tokens, secrets[name] = append(tokens, token), secret
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := WriteTokens(file, tokens); err != nil {
		t.Fatal(err)
	}
	s, base := start(t, func(c *Config) { c.Local, c.Tokens, c.Heavy = local, file, 4 })
	var all sync.WaitGroup
	get := func(who string, n int) {
		all.Go(func() {
			r, err := http.NewRequest("GET", fmt.Sprintf("%s/buildid/%040x/executable", base, n), nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+secrets[who])
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s", who, resp.Status)
			}
		})
	}
	await := func(what string, is func() bool) {
		for !is() {
			if t.Context().Err() != nil {
				t.Fatal(what)
			}
			runtime.Gosched()
		}
	}
	waiting := func() int {
		s.unpacks.mu.Lock()
		defer s.unpacks.mu.Unlock()
		return len(s.unpacks.queue)
	}
	for n := range 20 {
		get("greedy", n)
	}
	<-local.entered
	<-local.entered
	await("the others wait", func() bool { return waiting() == 18 })
	get("other", 100)
	await("the other client waits", func() bool { return waiting() == 19 })
	local.end <- struct{}{}
	if id := <-local.entered; id.String() != fmt.Sprintf("%040x", 100) {
		t.Errorf("the next one is %s", id)
	}
	for range 20 {
		get("other", 100)
	}
	await("they join it", func() bool {
		s.fetches.mu.Lock()
		defer s.fetches.mu.Unlock()
		return s.fetches.calls[fmt.Sprintf("local %040x", 100)].waiting == 21
	})
	if n := s.unpacks.inUse(); n != 2 {
		t.Errorf("%d are read at a time", n)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-local.entered:
			case local.end <- struct{}{}:
			case <-ended:
				return
			}
		}
	}()
	all.Wait()
	close(ended)
	if n := s.unpacks.inUse(); n != 0 {
		t.Errorf("%d are not given back", n)
	}
}

// TestFlightEnds wants a call that failed to be made again, though somebody who joined it has not left: a slow reader of a
// file that came early stays as long as it likes.
func TestFlightEnds(t *testing.T) {
	var f flights
	failed := errors.New("failed")
	slow, _ := f.join(t.Context(), "key", func(context.Context, *flight) (any, error) { return nil, failed })
	defer f.leave(slow)
	if _, err := slow.wait(t.Context()); err != failed {
		t.Fatal(err)
	}
	if shared, err := f.do(t.Context(), "key", func(context.Context) error { return nil }); shared || err != nil {
		t.Errorf("shared %t, %v", shared, err)
	}
}
