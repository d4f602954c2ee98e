package server

import (
	"errors"
	"net/http"
	"time"
)

// A gate is a pool of requests under way, of which a slow one ends when there is no room for another client's.
type gate struct {
	pool
	under map[*exchange]struct{}
}

func newGate(size int, busy error) *gate {
	return &gate{pool: pool{size: int64(size), busy: busy}, under: map[*exchange]struct{}{}}
}

// enter lets a request in, which calls leave at its end. It does not wait.
func (g *gate) enter(e *exchange) error {
	g.mu.Lock()
	ok := g.mayHave(e.client, 1)
	var slow *exchange
	if !ok {
		if slow = g.slowest(e.client); slow != nil {
			g.drop(slow)
			ok = g.mayHave(e.client, 1)
		}
	}
	if ok {
		g.add(e.client, 1)
		g.under[e] = struct{}{}
	}
	g.mu.Unlock()
	if slow != nil {
		slow.cut(errGaveWay)
	}
	if !ok {
		return g.busy
	}
	return nil
}

// slowest returns the request whose client is most behind, of those whose clients hold more than the one that comes, or that
// are its own; nil for none. It is called under the lock.
func (g *gate) slowest(client string) (slow *exchange) {
	held, most, now := int64(0), slowTime, time.Now()
	if s := g.clients[client]; s != nil {
		held = s.held
	}
	full := g.used >= g.size
	for e := range g.under {
		own := e.client == client
		if !own && (!full || g.clients[e.client].held <= held) {
			continue
		}
		if behind := e.behind(now); behind >= most {
			slow, most = e, behind
		}
	}
	return slow
}

// drop has a request hold nothing any more. It is called under the lock.
func (g *gate) drop(e *exchange) {
	if _, ok := g.under[e]; ok {
		delete(g.under, e)
		g.remove(e.client, 1)
	}
}

// leave ends a request.
func (g *gate) leave(e *exchange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(e)
}

// Requests that the server answers when all others fill it: of administrators, and for those who watch it.
const watchers = 128

// gates are the pools of requests. Who is not known takes nothing from those who are.
type gates struct {
	known, strangers, watch *gate
}

func newGates(requests int) gates {
	busy := func(text string) error { return fail(http.StatusServiceUnavailable, "%s", text) }
	return gates{
		known:     newGate(requests, busy("the server has as many requests at once as it takes")),
		strangers: newGate(max(8, requests/4), busy("the server has as many requests without a token as it takes")),
		watch:     newGate(watchers, busy("the server has as many requests for its state as it takes")),
	}
}

// enter lets a request in where it belongs. Without an error, leave ends it.
func (g *gates) enter(e *exchange, isKnown, isWatch bool) (leave func(), err error) {
	at := g.known
	switch {
	case !isKnown:
		at = g.strangers
	case isWatch:
		at = g.watch
	}
	err = at.enter(e)
	if err != nil && e.who.may(Admin) && at != g.watch {
		at = g.watch
		err = at.enter(e)
	}
	if err != nil {
		return nil, err
	}
	return func() { at.leave(e) }, nil
}

// reasonOf returns the word by which a refusal is counted; "" for none.
func (s *Server) reasonOf(err error) string {
	var limit *limitError
	switch {
	case err == nil:
	case errors.Is(err, s.gates.known.busy):
		return "requests"
	case errors.Is(err, s.gates.strangers.busy):
		return "strangers"
	case errors.Is(err, s.gates.watch.busy):
		return "watchers"
	case errors.Is(err, s.heavy.busy):
		return "heavy"
	case errors.Is(err, s.asks.busy):
		return "asks"
	case errors.Is(err, s.unpacks.busy):
		return "unpacks"
	case errors.Is(err, s.files.busy):
		return "files"
	case errors.Is(err, errUnread):
		return "answers"
	case errors.Is(err, s.profiles.decoded.busy):
		return "memory"
	case errors.Is(err, errSlow):
		return "slow"
	case errors.Is(err, errGaveWay):
		return "gave-way"
	case errors.As(err, &limit):
		return "limit"
	}
	return ""
}
