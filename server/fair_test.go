package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hallmark/server/blob"
	"hallmark/server/store"
)

// pipeNet is a network in memory, whose connections have no room: what one side writes waits until the other one reads it.
type pipeNet struct {
	come chan net.Conn
	done chan struct{}
	port atomic.Int32
}

type pipeConn struct {
	net.Conn
	remote net.Addr
}

func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

func (n *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.come:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *pipeNet) Close() error   { return nil }
func (n *pipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// dial connects from an address.
func (n *pipeNet) dial(from string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.come <- &pipeConn{there, &net.TCPAddr{IP: net.ParseIP(from), Port: int(n.port.Add(1))}}:
		return here, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// model is a server in simulated time, and its clients.
type model struct {
	*pipeNet
	server *Server
	ctx    context.Context
	all    sync.WaitGroup
	secret map[string]string

	mu      sync.Mutex
	answers map[string]int // by client
}

const (
	modelTime     = 40 * time.Second
	modelAnswer   = 64 << 10 // bytes of a large answer
	modelWorking  = 250 * time.Millisecond
	modelThinking = 100 * time.Millisecond // of an honest client, between two requests
)

// newModel starts a server with some tokens, and with work that takes as much as that of real requests.
func newModel(t *testing.T, ctx context.Context) *model {
	t.Helper()
	m := &model{pipeNet: &pipeNet{come: make(chan net.Conn), done: make(chan struct{})}, ctx: ctx, secret: map[string]string{}, answers: map[string]int{}}
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	var tokens []Token
	for name, roles := range map[string][]Role{
		"reader": {Read}, "worker": {Symbolize}, "uploader": {UploadCI}, "admin": {Admin},
		"greedy0": {Read, Symbolize, UploadCI}, "greedy1": {Read, Symbolize, UploadCI}, "greedy2": {Read, Symbolize, UploadCI},
	} {
		token, secret := NewToken(name, roles, time.Time{})
		tokens, m.secret[name] = append(tokens, token), secret
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := WriteTokens(file, tokens); err != nil {
		t.Fatal(err)
	}
	m.server = New(Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}, Tokens: file, Requests: 32, Heavy: 4, Connections: 120})
	m.server.mux.HandleFunc("GET /test/file", m.server.kind("test", Read, m.file))
	m.server.mux.HandleFunc("POST /test/work", m.server.kind("test", Symbolize, m.work))
	m.server.mux.HandleFunc("POST /test/file", m.server.kind("test", UploadCI, m.take))
	return m
}

// file answers as for a file of the store.
func (m *model) file(w *exchange, _ *http.Request, _ caller) error {
	time.Sleep(10 * time.Millisecond)
	_, err := io.Copy(w, io.LimitReader(zeroReader{}, modelAnswer))
	return err
}

// work answers as for a question that costs much, and whose answer is written while it is made.
func (m *model) work(w *exchange, r *http.Request, _ caller) (err error) {
	_, given, err := m.server.readMessage(r, w.client, r.Body)
	if err != nil {
		return err
	}
	defer given()
	if w.slot, err = m.server.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	time.Sleep(modelWorking)
	_, err = io.Copy(w, io.LimitReader(zeroReader{}, modelAnswer))
	return err
}

// take takes a file.
func (m *model) take(w *exchange, r *http.Request, _ caller) error {
	if err := m.server.files.enter(w); err != nil {
		return err
	}
	defer m.server.files.leave(w)
	body, finish, err := m.server.body(w, r, 1<<20)
	if err != nil {
		return err
	}
	defer finish()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// honest asks from an address, several times at once, until the end, and counts the answers.
func (m *model) honest(name, from string, atOnce int, method, path string, body []byte) {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return m.dial(from) }, MaxIdleConnsPerHost: atOnce}
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for m.ctx.Err() == nil {
				m.ask(transport, name, method, path, body)
				time.Sleep(modelThinking)
			}
		})
	}
	m.all.Go(func() { running.Wait(); transport.CloseIdleConnections() })
}

func (m *model) ask(transport *http.Transport, name, method, path string, body []byte) {
	r, err := http.NewRequestWithContext(m.ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return
	}
	if secret := m.secret[name]; secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 300 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[name]++
}

// greedy has a client do something on many connections, on a new one where one ends.
func (m *model) greedy(from string, connections int, slow func(net.Conn)) {
	for range connections {
		m.all.Go(func() {
			for m.ctx.Err() == nil {
				c, err := m.dial(from)
				if err != nil {
					return
				}
				stop := context.AfterFunc(m.ctx, func() { c.Close() })
				slow(c)
				stop()
				c.Close()
				time.Sleep(500 * time.Millisecond)
			}
		})
	}
}

// drip writes a byte each second until the connection ends, while what comes is read.
func drip(c net.Conn) {
	go io.Copy(io.Discard, c)
	for {
		if _, err := c.Write([]byte("a")); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// everyWay is that of a client that is slow in all ways at once, and everyWhere that of one that does so from many networks.
const (
	everyWay   = "every way"
	everyWhere = "every way from many networks"
)

// manyNetworks is from how many networks a client does each thing in everyWhere.
const manyNetworks = 10

// ways are the ways of being slow, for a client with a token, or without one where that is empty.
func ways(path map[string]string, token string) map[string]func(net.Conn) {
	authorization := ""
	if token != "" {
		authorization = "Authorization: Bearer " + token + "\r\n"
	}
	start := func(method, path string) []byte {
		return []byte(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + authorization)
	}
	ended := func(c net.Conn) { // nothing is read: only the end of the connection ends a write
		for {
			if _, err := c.Write([]byte{0}); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	return map[string]func(net.Conn){
		"a silent connection": func(c net.Conn) { io.Copy(io.Discard, c) },
		"a dripping header":   func(c net.Conn) { c.Write([]byte("GET / HTTP/1.1\r\nX: ")); drip(c) },
		"a dripping body": func(c net.Conn) {
			c.Write(append(start("POST", path["POST"]), "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 8000\r\n\r\n"...))
			drip(c)
		},
		"an unread answer": func(c net.Conn) {
			c.Write(append(start("GET", path["GET"]), "\r\n"...))
			ended(c)
		},
		"an unread answer that costs much": func(c net.Conn) {
			c.Write(append(start("POST", path["work"]), "Content-Length: 0\r\n\r\n"...))
			ended(c)
		},
		"a window of 0": func(c net.Conn) { zeroWindow(c, path["GET"], token) },
		"many questions": func(c net.Conn) {
			go io.Copy(io.Discard, c)
			for {
				if _, err := c.Write(append(start("GET", path["GET"]), "\r\n"...)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
		"much work": func(c net.Conn) {
			go io.Copy(io.Discard, c)
			for {
				if _, err := c.Write(append(start("POST", path["work"]), "Content-Length: 0\r\n\r\n"...)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
	}
}

// zeroWindow asks for a file by HTTP/2 many times on a connection, and lets the server send nothing of it.
func zeroWindow(c net.Conn, path, token string) {
	var out bytes.Buffer
	frame := func(kind, flags byte, stream uint32, payload []byte) {
		var head [9]byte
		binary.BigEndian.PutUint32(head[:], uint32(len(payload))<<8|uint32(kind))
		head[4] = flags
		binary.BigEndian.PutUint32(head[5:], stream)
		out.Write(head[:])
		out.Write(payload)
	}
	out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(4, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // SETTINGS_INITIAL_WINDOW_SIZE
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	header := append([]byte{0x82, 0x86, 0x04}, text(path)...) // :method, :scheme, :path
	header = append(append(header, 0x01), text("localhost")...)
	if token != "" {
		header = append(append(header, 0x0f, 0x08), text("Bearer "+token)...)
	}
	for i := range uint32(20) {
		frame(1, 5, 2*i+1, header) // END_STREAM, END_HEADERS
	}
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(io.Discard, c) }()
	c.Write(out.Bytes())
	<-done
}

// runModel returns how many answers clients got, one of each role and one without, while n others are greedy in a way.
func runModel(t *testing.T, n int, way string, withToken bool) (answers map[string]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), modelTime)
		defer cancel()
		m := newModel(t, ctx)
		h := m.server.httpServer()
		served := make(chan error)
		go func() { served <- h.Serve(m) }()
		for i := range n {
			token, path := "", map[string]string{"GET": "/app/js/site.js", "POST": "/login", "work": "/login"}
			if withToken {
				token, path = m.secret[fmt.Sprint("greedy", i)], map[string]string{"GET": "/test/file", "POST": "/test/file", "work": "/test/work"}
				if way == "a dripping body" && i > 0 {
					path["POST"] = "/test/work"
				}
			}
			for name, slow := range ways(path, token) {
				switch way {
				case name:
					m.greedy(fmt.Sprintf("10.0.1.%d", i), 80, slow)
				case everyWay:
					m.greedy(fmt.Sprintf("10.0.1.%d", i), 10, slow)
				case everyWhere:
					for j := range manyNetworks {
						m.greedy(fmt.Sprintf("2001:db8:%x:%x%02x::1", i, len(name), j), 1, slow)
					}
				}
			}
		}
		if n > 0 {
			time.Sleep(10 * time.Second) // in which they take what they can
		}
		m.honest("reader", "10.0.0.1", 4, "GET", "/test/file", nil)
		m.honest("worker", "10.0.0.2", 4, "POST", "/test/work", make([]byte, 1000))
		m.honest("uploader", "10.0.0.3", 2, "POST", "/test/file", make([]byte, 100<<10))
		m.honest("admin", "10.0.0.4", 1, "GET", "/v1/health", nil)
		m.honest("stranger", "10.0.0.5", 2, "GET", "/app/js/site.js", nil)
		m.honest("prober", "10.0.0.6", 1, "GET", "/readyz", nil)
		m.all.Wait()
		close(m.done)
		h.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended: %v", err)
		}
		time.Sleep(5 * time.Minute) // in which all ends that is under way
		synctest.Wait()
		for name, used := range map[string]int64{"known": m.server.gates.known.inUse(), "strangers": m.server.gates.strangers.inUse(), "watch": m.server.gates.watch.inUse(),
			"heavy": m.server.heavy.inUse(), "files": m.server.files.inUse(), "bodies": m.server.profiles.bodies.inUse()} {
			if used != 0 {
				t.Errorf("%d of the pool %q are not given back", used, name)
			}
		}
		answers = m.answers
	})
	return answers
}

// TestFair has greedy clients of each kind, which are slow in each way: every other client has its part of the answers that it
// has alone, as many parts as there are clients.
func TestFair(t *testing.T) {
	alone := runModel(t, 0, "", false)
	for name, n := range alone {
		if n < 20 {
			t.Fatalf("%s: %d answers alone", name, n)
		}
	}
	check := func(n int, way string, withToken bool) {
		t.Run(strings.ReplaceAll(fmt.Sprintf("%d %s token %v", n, way, withToken), " ", "-"), func(t *testing.T) {
			answers := runModel(t, n, way, withToken)
			// The ten seconds before they begin are not among those that they had alone.
			least := 0.9 / float64(n+1) * float64(modelTime-10*time.Second) / float64(modelTime)
			for name := range alone {
				least := least
				switch {
				case way == everyWhere && name != "stranger":
					least *= float64(n + 1) // who has no token takes nothing from who has one
				case way == everyWhere: // each network is a client
					least *= float64(n+1) / float64(manyNetworks*len(ways(nil, ""))*n+1)
				}
				if share := float64(answers[name]) / float64(alone[name]); share < least {
					t.Errorf("%s: %d answers of %d alone, which is %.2f of them, and %.2f is its part", name, answers[name], alone[name], share, least)
				}
			}
			t.Log(answers, "of", alone)
		})
	}
	for _, withToken := range []bool{false, true} {
		for way := range ways(nil, "") {
			check(1, way, withToken)
		}
		check(3, everyWay, withToken)
	}
	check(1, everyWhere, false)
}
