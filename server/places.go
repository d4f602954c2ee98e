package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"hallmark/server/store"
	"hallmark/server/symbols"
)

// A place is one of those of requests that cost much. A request that only waits leaves it to others: for the bytes of a
// client, which may be as slow as it likes, and for an index.
type place struct {
	of chan struct{}

	mu   sync.Mutex
	held bool
	away int // how many of the request wait
}

// placeKey has the place of a request in its context.
type placeKey struct{}

// takeHeavy takes a place for requests that cost much, which is in the context that it returns. It waits a little.
func (s *Server) takeHeavy(ctx context.Context) (held context.Context, done func(), err error) {
	p, err := take(ctx, s.heavy)
	if err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, placeKey{}, p), p.done, nil
}

// take takes a place. It waits a little.
func take(ctx context.Context, of chan struct{}) (*place, error) {
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case of <- struct{}{}:
		return &place{of: of, held: true}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.C:
		return nil, fail(http.StatusTooManyRequests, "the server is busy")
	}
}

// done gives the place back.
func (p *place) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		p.held = false
		<-p.of
	}
}

// leave gives the place back until back is called.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away++; p.held {
		p.held = false
		<-p.of
	}
}

// back waits for a place again, unless others of the request still wait.
func (p *place) back(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away--; p.away > 0 {
		return nil
	}
	select {
	case p.of <- struct{}{}:
		p.held = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// index returns the index of files of the store, for the caller to close. A request that waits for it leaves its place.
func (s *Server) index(ctx, waiting context.Context, m *store.Manifest) (*symbols.Index, error) {
	p, ok := ctx.Value(placeKey{}).(*place)
	if !ok {
		return s.Symbols.Get(ctx, waiting, m)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	x, err := s.Symbols.Get(ctx, now, m)
	var miss *symbols.MissError
	if !errors.As(err, &miss) || miss.Miss != symbols.Pending {
		return x, err
	}
	p.leave()
	x, err = s.Symbols.Get(ctx, waiting, m)
	if gone := p.back(ctx); gone != nil {
		if x != nil {
			x.Close()
		}
		return nil, gone
	}
	return x, err
}
