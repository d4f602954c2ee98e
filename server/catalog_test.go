package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/blob/blobtest"
	"hallmark/server/store"
)

// countedStore counts what is asked of a store.
type countedStore struct {
	blob.Store
	manifests, others, lists atomic.Int64
}

func (c *countedStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	if strings.HasPrefix(key, "id/") {
		c.manifests.Add(1)
	} else {
		c.others.Add(1)
	}
	return c.Store.Get(ctx, key, off, n)
}

func (c *countedStore) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	if prefix == "id/" {
		c.lists.Add(1)
	}
	return c.Store.List(ctx, prefix)
}

// before is what a server without a catalogue finds: it lists and reads all manifests.
func before(t *testing.T, blobs blob.Store) (found int) {
	t.Helper()
	for info, err := range blobs.List(t.Context(), "id/") {
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := blob.Read(t.Context(), blobs, info.Key, blob.MaxSwap)
		var m store.Manifest
		if err != nil || json.Unmarshal(b, &m) != nil {
			t.Fatalf("%s: %v", info.Key, err)
		}
		if len(m.Files) > 0 {
			found++
		}
	}
	return found
}

// TestOldStore starts a server over a store that servers without a catalogue have filled. It reads each manifest once, and
// those that come later read none, and as much else whatever the store has. A server without a catalogue finds all that
// there is, too.
func TestOldStore(t *testing.T) {
	asked := map[int]int64{}
	for _, n := range []int{2000, 20000} {
		blobs := &countedStore{Store: &blobtest.Memory{}}
		for i := range n {
			putManifest(t, blobs, numbered(t, i))
		}
		_, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
		if got := blobs.manifests.Swap(0); got != int64(n) {
			t.Errorf("%d manifests were read at first, want %d", got, n)
		}
		a := read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search", nil).want(t, http.StatusOK))
		if a.Total != n || !a.Complete {
			t.Errorf("%d found, complete: %v", a.Total, a.Complete)
		}
		blobs.others.Store(0)
		blobs.lists.Store(0)
		_, again := start(t, func(c *Config) { c.Store.Blobs = blobs })
		if blobs.manifests.Load() != 0 || blobs.lists.Load() != 0 {
			t.Errorf("%d manifests were read at the second start, and all listed %d times", blobs.manifests.Load(), blobs.lists.Load())
		}
		asked[n] = blobs.others.Load()
		p := program(t)
		upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, http.StatusCreated)
		if got := before(t, blobs); got != n+1 {
			t.Errorf("a server without a catalogue finds %d, want %d", got, n+1)
		}
		if a := read[api.SearchAnswer](t, ask(t, "GET", again+"/v1/search", nil).want(t, http.StatusOK)); a.Total != n {
			t.Errorf("%d found", a.Total)
		}
	}
	if asked[20000] > asked[2000]+1 {
		t.Errorf("a start reads %v objects", asked)
	}
}

// TestFollowing has two servers follow one store, as the command does: each finds what the other one takes.
func TestFollowing(t *testing.T) {
	p := program(t)
	rng := testenv.Rand(t)
	var blobs blob.Store
	one, base := start(t, func(c *Config) { blobs = c.Store.Blobs })
	two := New(Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	for _, s := range []*Server{one, two} {
		go func() { s.Follow(ctx); done <- true }()
	}
	for i := range 3 {
		c := copyOf(p, rng)
		upload(t, base, c.bytes, fmt.Sprintf("name=/usr/bin/%d", i)).want(t, http.StatusCreated)
		testenv.Await(t, "the other server to find it", func() bool {
			e, ok := two.Store.Catalog().Entry(c.id)
			if ok && (len(e.Names) != 2 || e.Names[0].File != fmt.Sprintf("/usr/bin/%d", i)) {
				t.Errorf("%+v", e)
			}
			return ok
		})
	}
	if !two.Store.Catalog().Complete() {
		t.Error("it is not complete")
	}
	cancel()
	<-done
	<-done
}
