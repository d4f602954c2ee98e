package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"hallmark/server/api"
)

// A pool is what clients share and there is only so much of: requests under way, work that costs much, memory. No client
// can keep the others from it: one that holds some gets more only while as much stays free as it holds then. So of N
// greedy clients each ends with a part of N+1, and as much stays free.
type pool struct {
	size int64
	busy error // what is answered to a client that gets nothing
	// eager has one client take all while nobody else wants any. It is for what is held for a bounded time.
	eager bool

	mu      sync.Mutex
	used    int64
	clients map[string]*share // those that hold something or wait
	queue   []*waiter
	clock   uint64 // counts what was given
}

// share is what a client has of a pool.
type share struct {
	held    int64
	waiting int
	last    uint64 // when it got some
}

// waiter is a request that waits for its part of a pool.
type waiter struct {
	client string
	n      int64
	ready  chan struct{} // closed when it has its part
}

// take takes a part of a pool for a client. It waits so long for others to give theirs back.
func (p *pool) take(ctx context.Context, client string, n int64, wait time.Duration) (*slot, error) {
	s := &slot{pool: p, client: client, n: n}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, p.busy)
	defer cancel()
	if err := s.resume(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// try takes a part of a pool for a client where it can have it now. The caller gives it back by done.
func (p *pool) try(client string, n int64) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mayHave(client, n) {
		p.forget(client)
		return nil, p.busy
	}
	p.add(client, n)
	return func() { p.give(client, n) }, nil
}

// wait returns when a client has its part, or when ctx is done.
func (p *pool) wait(ctx context.Context, client string, n int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	w := &waiter{client, n, make(chan struct{})}
	p.of(client).waiting++
	p.queue = append(p.queue, w)
	p.serve()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	default:
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, w)
	if i < 0 {
		return nil // it has just come
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.of(client).waiting--
	p.forget(client)
	p.serve() // it may have been before others
	return context.Cause(ctx)
}

// of returns the share of a client. It is called under the lock, as are all below.
func (p *pool) of(client string) *share {
	s := p.clients[client]
	if s == nil {
		if p.clients == nil {
			p.clients = map[string]*share{}
		}
		s = new(share)
		p.clients[client] = s
	}
	return s
}

// forget ends the share of a client that has none.
func (p *pool) forget(client string) {
	if s := p.clients[client]; s != nil && s.held == 0 && s.waiting == 0 {
		delete(p.clients, client)
	}
}

// mayHave reports whether a client may have so much more.
func (p *pool) mayHave(client string, n int64) bool {
	free, held := p.size-p.used, int64(0)
	if s := p.clients[client]; s != nil {
		held = s.held
	}
	return n <= free && (p.eager || held == 0 || held+n <= free)
}

// add gives a client so much.
func (p *pool) add(client string, n int64) {
	s := p.of(client)
	p.clock++
	s.held, s.last = s.held+n, p.clock
	p.used += n
}

// serve gives what is free to those who wait: first to clients that hold least, and of these to those that got nothing
// for longest.
func (p *pool) serve() {
	for len(p.queue) > 0 {
		next := p.next()
		if next < 0 {
			return
		}
		w := p.queue[next]
		p.queue = slices.Delete(p.queue, next, next+1)
		p.of(w.client).waiting--
		p.add(w.client, w.n)
		close(w.ready)
	}
}

// next returns who gets something now, -1 for nobody. For one that wants more than is free all others wait, or it would
// never have it. For one that holds too much nobody waits.
func (p *pool) next() int {
	order := make([]int, len(p.queue))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := p.clients[p.queue[a].client], p.clients[p.queue[b].client]
		return cmp.Or(cmp.Compare(x.held, y.held), cmp.Compare(x.last, y.last))
	})
	for _, i := range order {
		w := p.queue[i]
		if p.mayHave(w.client, w.n) {
			return i
		}
		if w.n > p.size-p.used {
			return -1
		}
	}
	return -1
}

// give takes a part back from a client.
func (p *pool) give(client string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(client, n)
	p.serve()
}

func (p *pool) remove(client string, n int64) {
	p.of(client).held -= n
	p.used -= n
	p.forget(client)
}

// inUse returns how much is held.
func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// state returns how a pool is.
func (p *pool) state(of string) api.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return api.Pool{Of: of, Size: p.size, InUse: p.used, Clients: len(p.clients)}
}

// A slot is a part of a pool that one request holds. A request that only waits gives it back meanwhile: for a client that
// is slow, and for an index.
type slot struct {
	pool   *pool
	client string
	n      int64

	mu     sync.Mutex
	held   bool
	closed bool
	paused int // how many of the request wait
}

// release gives a slot back. A slot of nobody is none.
func (s *slot) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.drop()
}

func (s *slot) drop() {
	if s.held {
		s.held = false
		s.pool.give(s.client, s.n)
	}
}

// pause gives a slot back until resume is called.
func (s *slot) pause() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused++
	s.drop()
}

// resume waits for a slot again, unless others of the request still wait.
func (s *slot) resume(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused = max(0, s.paused-1); s.paused > 0 || s.held || s.closed {
		return nil
	}
	err := s.pool.wait(ctx, s.client, s.n)
	s.held = err == nil
	return err
}
