package server

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits bound what one client may take of a server: by the name of its token, or by its address where it
// has none. Tokens of administrators have no limits. Each server counts for itself, from its start.
type Limits struct {
	// Requests is how many a client may make a second in the long run, and ten times as many at once;
	// 0 for any number.
	Requests int64
	// UploadBytes is how many bytes of requests a client may upload on a day of UTC; 0 for any number.
	UploadBytes int64
}

// burst is for how many seconds of requests a client may make at once.
const burst = 10

// maxClients is how many clients are known at a time.
const maxClients = 1 << 16

// meter counts what clients take.
type meter struct {
	Limits
	now func() time.Time

	mu      sync.Mutex
	clients map[string]*taken
}

// taken is what a client took.
type taken struct {
	requests float64 // that are not forgotten yet
	at       time.Time
	day      int64
	bytes    int64 // on that day
}

// A limitError says that a client has taken all that it may.
type limitError struct {
	limit string // "requests" or "upload"
	text  string
	after time.Duration
}

func (e *limitError) Error() string { return e.text }

const secondsOfDay = 24 * 60 * 60

// client returns what a client took, as of now. It is called under the lock.
func (m *meter) client(name string) *taken {
	now := m.now()
	c := m.clients[name]
	if c == nil {
		if m.clients == nil {
			m.clients = map[string]*taken{}
		}
		m.forget(now)
		c = &taken{at: now}
		m.clients[name] = c
	}
	if past := now.Sub(c.at).Seconds(); past > 0 {
		c.requests = max(0, c.requests-past*float64(m.Requests))
	}
	c.at = now
	if day := now.Unix() / secondsOfDay; day != c.day {
		c.day, c.bytes = day, 0
	}
	return c
}

// forget makes room for a client: of those that took nothing, or of any one.
func (m *meter) forget(now time.Time) {
	if len(m.clients) < maxClients {
		return
	}
	for name, c := range m.clients {
		if now.Sub(c.at) > burst*time.Second && (c.bytes == 0 || c.day != now.Unix()/secondsOfDay) {
			delete(m.clients, name)
		}
	}
	for name := range m.clients {
		if len(m.clients) < maxClients {
			return
		}
		delete(m.clients, name)
	}
}

// request counts a request.
func (m *meter) request(name string) error {
	if m.Requests <= 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.client(name)
	most := float64(burst * m.Requests)
	if c.requests+1 > most {
		wait := time.Duration((c.requests + 1 - most) / float64(m.Requests) * float64(time.Second))
		return &limitError{"requests", fmt.Sprintf("more than %d requests a second", m.Requests), wait}
	}
	c.requests++
	return nil
}

// upload counts bytes that arrived, unless there are too many. With count false it only looks whether
// there would be.
func (m *meter) upload(name string, n int64, count bool) error {
	if m.UploadBytes <= 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.client(name)
	if n > m.UploadBytes-c.bytes {
		wait := time.Duration(secondsOfDay-m.now().Unix()%secondsOfDay) * time.Second
		return &limitError{"upload", fmt.Sprintf("more than %d bytes of uploads on one day (of UTC)", m.UploadBytes), wait}
	}
	if count {
		c.bytes += n
	}
	return nil
}

// clientOf returns by what name the limits of a client are kept. A network of IPv6 is one client, since each
// machine there has as many addresses as it likes.
func clientOf(r *http.Request, who caller) string {
	if who.name != "" {
		return "token " + who.name
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "address"
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		if p, err := ip.WithZone("").Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + ip.String()
}

// limited counts a request of a client, who may be nobody that is known.
func (s *Server) limited(r *http.Request, who caller) error {
	if who.may(Admin) {
		return nil
	}
	return s.meter.request(clientOf(r, who))
}

// receives returns what counts the bytes of an upload. An upload that says that it is too large is refused
// at once.
func (s *Server) receives(r *http.Request, who caller) (func(n int64) error, error) {
	if who.may(Admin) {
		return func(int64) error { return nil }, nil
	}
	name := clientOf(r, who)
	return func(n int64) error { return s.meter.upload(name, n, true) }, s.meter.upload(name, max(r.ContentLength, 1), false)
}

// seconds returns a time as in Retry-After.
func seconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }
