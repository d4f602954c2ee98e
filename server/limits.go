package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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

// isCertified reports whether a client showed a certificate that the TLS server has verified.
func isCertified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// clientOf returns whose share of the server a request takes: a token's, a certificate's, or an address's.
func (s *Server) clientOf(r *http.Request, who caller) string {
	switch {
	case who.name != "":
		return "token " + who.name
	case isCertified(r):
		sum := sha256.Sum256(r.TLS.VerifiedChains[0][0].Raw)
		return "certificate " + hex.EncodeToString(sum[:8])
	}
	ip, ok := ipOf(r.RemoteAddr)
	if !ok {
		return "address"
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for ; s.isProxy(ip) && len(hops) > 0; hops = hops[:len(hops)-1] {
		before, ok := ipOf(strings.TrimSpace(hops[len(hops)-1]))
		if !ok {
			break
		}
		ip = before
	}
	return networkOf(ip)
}

// clientAt returns whose the connection from an address is.
func (s *Server) clientAt(address string) string {
	ip, ok := ipOf(address)
	if !ok {
		return "address"
	}
	return networkOf(ip)
}

// isProxy reports whether an address is one of a proxy whose word counts.
func (s *Server) isProxy(ip netip.Addr) bool {
	return slices.ContainsFunc(s.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// ipOf reads an address with or without a port.
func ipOf(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap().WithZone(""), err == nil
}

// networkOf returns the client of an address. A network of IPv6 is one client, since each machine there has as many
// addresses as it likes.
func networkOf(ip netip.Addr) string {
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + ip.String()
}

// limited counts a request of a client, who may be nobody that is known.
func (s *Server) limited(w *exchange) error {
	if w.who.may(Admin) {
		return nil
	}
	return s.meter.request(w.client)
}

// leastUpload is how many bytes a request with a body counts for at least: each leaves something in the store, if it be
// empty.
const leastUpload = 4 << 10

// tally counts an upload, which comes compressed and is kept decompressed: it counts for the larger of both.
type tally struct {
	meter  *meter
	client string // "" for one without limits
	most   int64  // that was counted
}

// receives returns what counts the bytes of an upload. An upload that says that it is too large is refused
// at once.
func (s *Server) receives(w *exchange, r *http.Request) (*tally, error) {
	t := &tally{meter: &s.meter, client: w.client}
	if w.who.may(Admin) {
		t.client = ""
		return t, nil
	}
	if err := s.meter.upload(t.client, max(r.ContentLength, leastUpload), false); err != nil {
		return nil, err
	}
	return t, t.upTo(leastUpload)
}

// upTo counts what an upload has in one of its forms by now.
func (t *tally) upTo(n int64) error {
	more := n - t.most
	if more <= 0 || t.client == "" {
		return nil
	}
	t.most = n
	return t.meter.upload(t.client, more, true)
}

// tallied counts the bytes of one form of an upload.
type tallied struct {
	io.Reader
	t *tally
	n int64
}

func (c *tallied) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if limit := c.t.upTo(c.n); limit != nil {
		return n, limit
	}
	return n, err
}

// seconds returns a time as in Retry-After.
func seconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }
