package view

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// guests bounds the connections. Every local user can connect, so a connection that comes when
// there are most others takes the place of the oldest stranger, which has not shown the key, the
// ticket or the cookie. Somebody without these keeps nobody out by holding connections.
type guests struct {
	most int

	mu  sync.Mutex
	all []*guest // oldest first
}

// guest is a connection.
type guest struct {
	conn    net.Conn
	of      *guests
	isKnown bool // under of.mu: it came through the door
}

type guestKey struct{}

// welcome is for http.Server.ConnContext.
func (g *guests) welcome(ctx context.Context, c net.Conn) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := &guest{conn: c, of: g}
	g.all = append(g.all, one)
	if len(g.all) > g.most {
		g.dismiss()
	}
	return context.WithValue(ctx, guestKey{}, one)
}

// dismiss closes the connection of the oldest stranger, or the newest one where there is no
// stranger. The caller holds mu.
func (g *guests) dismiss() {
	i := 0
	for i < len(g.all)-1 && g.all[i].isKnown {
		i++
	}
	g.all[i].conn.Close()
	g.all = slices.Delete(g.all, i, i+1)
}

// changed is for http.Server.ConnState.
func (g *guests) changed(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, one := range g.all {
		if one.conn == c {
			g.all = slices.Delete(g.all, i, i+1)
			return
		}
	}
}

// know notes that the connection of a request is no stranger's.
func know(r *http.Request) {
	if one, ok := r.Context().Value(guestKey{}).(*guest); ok {
		one.of.mu.Lock()
		defer one.of.mu.Unlock()
		one.isKnown = true
	}
}
