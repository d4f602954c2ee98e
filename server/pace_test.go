package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// crawl returns how many bytes of an answer come to a client that reads so many each second, of size bytes that the server has.
func crawl(t *testing.T, size, each int64, known bool) (got int64, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, t.Context())
		m.server.mux.HandleFunc("GET /test/large", m.server.kind("test", public, func(w *exchange, _ *http.Request, _ caller) error {
			_, err := io.Copy(w, io.LimitReader(zeroReader{}, size))
			return err
		}))
		h := m.server.httpServer()
		served := make(chan error)
		go func() { served <- h.Serve(m) }()
		c, dialErr := m.dial("10.0.0.1")
		if dialErr != nil {
			t.Fatal(dialErr)
		}
		token := ""
		if known {
			token = "Authorization: Bearer " + m.secret["reader"] + "\r\n"
		}
		fmt.Fprintf(c, "GET /test/large HTTP/1.0\r\nHost: localhost\r\n%s\r\n", token)
		b := make([]byte, each)
		for err == nil {
			time.Sleep(time.Second)
			var n int
			n, err = io.ReadFull(c, b)
			got += int64(n)
		}
		c.Close()
		close(m.done)
		h.Close()
		<-served
		time.Sleep(time.Hour)
	})
	return got, err
}

// TestPace has clients read at different rates. Those that reach theirs get all, be it 2 GiB in nine hours.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		size, each int64
		known      bool
		whole      bool
	}{
		{2 << 30, 64 << 10, false, true},
		{256 << 10, 1200, false, true},
		{256 << 10, 500, false, false},
		{256 << 10, 200, true, true},
		{256 << 10, 50, true, false},
	} {
		got, err := crawl(t, c.size, c.each, c.known)
		if whole := got >= c.size && (err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)); whole != c.whole {
			t.Errorf("%+v: %d bytes, %v", c, got, err)
		}
	}
}

// TestBodyPace has clients send at different rates.
func TestBodyPace(t *testing.T) {
	for _, c := range []struct {
		each   int
		token  bool
		status string
	}{{1500, false, "303"}, {100, false, "408"}, {200, true, "303"}, {50, true, "408"}} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, t.Context())
			h := m.server.httpServer()
			served := make(chan error)
			go func() { served <- h.Serve(m) }()
			conn, err := m.dial("10.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			token := ""
			if c.token {
				token = "Authorization: Bearer " + m.secret["reader"] + "\r\n"
			}
			body := "token=" + m.secret["reader"] + "&more=" + strings.Repeat("x", 7900)
			go func() {
				fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n%sContent-Length: %d\r\n\r\n", token, len(body))
				for rest := body; rest != ""; time.Sleep(time.Second) {
					n := min(len(rest), c.each)
					if _, err := io.WriteString(conn, rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
			}()
			b := make([]byte, 12)
			if _, err := io.ReadFull(conn, b); err != nil || !strings.HasSuffix(string(b), c.status) {
				t.Errorf("%+v: %q, %v", c, b, err)
			}
			conn.Close()
			close(m.done)
			h.Close()
			<-served
			time.Sleep(time.Hour)
		})
	}
}

// TestSlowTCP has a client take an answer over a real connection more slowly than the kernel takes it from the server: what
// the client's side has received counts, and not what the server could write.
func TestSlowTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, nil)
	looked := make(chan int64, 1)
	s.mux.HandleFunc("GET /test/received", s.kind("test", public, func(w *exchange, _ *http.Request, _ caller) error {
		if _, err := io.Copy(w, io.LimitReader(zeroReader{}, 1<<20)); err != nil {
			return err
		}
		if err := w.FlushError(); err != nil {
			return err
		}
		n, ok := w.received()
		if !ok {
			n = -1
		}
		looked <- n
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	a := ask(t, "GET", "http://"+l.Addr().String()+"/test/received", nil).want(t, 200)
	if n := <-looked; n < 1 || n > 1<<20+4096 || len(a.body) != 1<<20 {
		t.Errorf("the server sees %d bytes received of %d", n, len(a.body))
	}
	cancel()
	<-ended
}

// TestConnections has silent clients take all connections that there may be: one of them ends for each that comes.
func TestConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, func(c *Config) { c.Connections = 8 })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	var silent []net.Conn
	for range 30 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	ask(t, "GET", "http://"+l.Addr().String()+"/", nil).want(t, 200)
	if n, over := s.conns.count(), s.refused.counts()["connections"]; n > 8 || over < 22 {
		t.Errorf("%d connections, and %d were ended", n, over)
	}
	for i, c := range silent[:20] {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d is there", i)
		}
	}
	if a := ask(t, "GET", "http://"+l.Addr().String()+"/v1/health", nil).want(t, 200); !strings.Contains(string(a.body), `"connections":`) || !strings.Contains(string(a.body), `"refused":{"connections":`) {
		t.Errorf("%s", a.body)
	}
	cancel()
	<-ended
}

// TestWorstConnection chooses which connection ends.
func TestWorstConnection(t *testing.T) {
	s := new(Server)
	c := &conns{most: 4, key: s.clientAt, ended: func() {}}
	var all []*pipeConn
	add := func(from string) *pipeConn {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		one := &pipeConn{there, &net.TCPAddr{IP: net.ParseIP(from), Port: 1000 + len(all)}}
		all = append(all, one)
		c.onState(one, http.StateNew)
		return one
	}
	is := func(one *pipeConn) bool { return c.all[one.RemoteAddr().String()] != nil }
	busy := add("10.0.0.1")
	end := c.begin(busy.RemoteAddr().String())
	alone := add("10.0.0.2")
	first, second := add("2001:db8::1"), add("2001:db8::2")
	add("10.0.0.3")
	if !is(busy) || !is(alone) || is(first) || !is(second) {
		t.Error("not the oldest silent one of the network with most")
	}
	add("10.0.0.4")
	if !is(busy) || is(alone) {
		t.Error("not the one that is silent for longest")
	}
	end()
}
