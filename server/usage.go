package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/server/store"
)

// usage has the identities that were asked for and whose manifests do not say so yet. They are written
// together, so that no request waits for that: a server that is killed forgets a minute of them.
type usage struct {
	mu  sync.Mutex
	ids map[buildid.ID]*store.Manifest
}

// Bounds of usage.
const (
	usageTime = time.Minute
	maxUsage  = 100000 // more are noted when they are asked for again
)

// used notes that an identity is asked for, by a token.
func (s *Server) used(who string, m *store.Manifest) {
	s.asked.note(who, m.ID, "")
	if s.ReadOnly || m.UsedOn(s.now()) {
		return
	}
	u := &s.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[buildid.ID]*store.Manifest{}
	}
	if len(u.ids) < maxUsage {
		u.ids[m.ID] = m
	}
}

// now is the time of the store.
func (s *Server) now() time.Time {
	if s.Store.Now != nil {
		return s.Store.Now()
	}
	return time.Now()
}

// writeUsage writes the uses that were noted. One that cannot be written is noted when the identity is asked for again.
func (s *Server) writeUsage(ctx context.Context) {
	u := &s.usage
	u.mu.Lock()
	all := slices.Collect(maps.Values(u.ids))
	u.ids = nil
	u.mu.Unlock()
	err := parallel(ctx, len(all), func(i int) error { return s.Store.Use(ctx, all[i]) })
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("last uses cannot be written", "error", err)
	}
}

// atOnce is how many requests to the store are under way for one request to the server.
const atOnce = 16

// parallel does n things, some at a time, and returns the first error, after which no more are begun.
func parallel(ctx context.Context, n int, do func(i int) error) error {
	var mu sync.Mutex
	var failed error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && failed == nil
	}
	var all sync.WaitGroup
	for range min(n, atOnce) {
		all.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := containedWork(ctx, func(context.Context) error { return do(i) }); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}
