package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// conns are the connections of a server, of which there may be so many. One that comes when there is no room ends another:
// one that has no request, of the client with most connections, that is silent for longest.
type conns struct {
	most  int
	ended func() // is called for each that is ended
	key   func(address string) string

	mu     sync.Mutex
	all    map[string]*connection // by the address of the other side
	counts map[string]int         // by client
}

type connection struct {
	net.Conn
	client   string
	requests int
	since    time.Time // when it was last heard of
}

// mostConns returns how many connections a server takes: half of the files that it may open, and no more than so many.
func mostConns(most int) int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur/2 > uint64(most) {
		return most
	}
	return max(8, int(l.Cur/2))
}

// onState is for http.Server.ConnState.
func (c *conns) onState(n net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address := n.RemoteAddr().String()
	one := c.all[address]
	switch {
	case state == http.StateNew:
		if c.all == nil {
			c.all, c.counts = map[string]*connection{}, map[string]int{}
		}
		c.remove(address)
		one = &connection{Conn: n, client: c.key(address), since: time.Now()}
		c.all[address] = one
		c.counts[one.client]++
		if len(c.all) > c.most {
			c.makeRoom(address)
		}
	case one == nil || one.Conn != n:
	case state == http.StateClosed || state == http.StateHijacked:
		c.remove(address)
	default:
		one.since = time.Now()
	}
}

func (c *conns) remove(address string) {
	one := c.all[address]
	if one == nil {
		return
	}
	delete(c.all, address)
	if c.counts[one.client]--; c.counts[one.client] == 0 {
		delete(c.counts, one.client)
	}
}

// makeRoom ends a connection, and none that has just come where there is another one.
func (c *conns) makeRoom(latest string) {
	worst, end := "", latest
	for address, one := range c.all {
		if address != latest && (worst == "" || c.isWorse(one, c.all[worst])) {
			worst = address
		}
	}
	if w := c.all[worst]; w != nil {
		theirs, own := c.counts[w.client], c.counts[c.all[latest].client]
		if theirs > own || theirs == own && w.requests == 0 {
			end = worst
		}
	}
	plain := c.all[end].Conn
	if t, ok := plain.(*tls.Conn); ok { // its Close waits for the other side
		plain = t.NetConn()
	}
	c.remove(end)
	plain.Close()
	c.ended()
}

// isWorse reports whether a connection is to be ended rather than another one.
func (c *conns) isWorse(a, b *connection) bool {
	switch x, y := c.counts[a.client], c.counts[b.client]; {
	case (a.requests == 0) != (b.requests == 0):
		return a.requests == 0
	case x != y:
		return x > y
	}
	return a.since.Before(b.since)
}

// begin notes a request of a connection, and returns what is called at its end.
func (c *conns) begin(address string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[address]
	if one == nil {
		return func() {}
	}
	one.requests++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.requests--
		one.since = time.Now()
	}
}

// received returns what counts the bytes that the other side of a connection has received (tcp(7), TCP_INFO); nil where
// nobody knows.
func (c *conns) received(address string) func() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[address]
	if one == nil {
		return nil
	}
	plain := one.Conn
	if t, ok := plain.(*tls.Conn); ok {
		plain = t.NetConn()
	}
	tcp, ok := plain.(*net.TCPConn)
	if !ok {
		return nil
	}
	return func() (n int64, ok bool) {
		raw, err := tcp.SyscallConn()
		if err != nil {
			return 0, false
		}
		err = raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if ok = err == nil; ok {
				n = int64(info.Bytes_acked)
			}
		})
		return n, ok && err == nil
	}
}

// count returns how many connections there are.
func (c *conns) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.all))
}
