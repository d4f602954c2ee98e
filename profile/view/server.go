package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"hallmark/internal/plaintext"
	"hallmark/web"
)

// ErrNotLoopback is the error for an address that other machines could reach.
var ErrNotLoopback = errors.New("profiles are shown on the loopback interface only, such as 127.0.0.1:0")

// listen listens at a host and a port of the loopback interface.
func listen(address string) (*net.TCPListener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !tcp.IP.IsLoopback() {
		return nil, fmt.Errorf("%s: %w", address, ErrNotLoopback)
	}
	return net.ListenTCP("tcp", tcp)
}

// Bounds of what others on this machine can make the server keep, who need no key to connect.
const (
	maxConnections = 128
	maxHeader      = 64 << 10
	headerTimeout  = 10 * time.Second
	readTimeout    = 30 * time.Second
	idleTimeout    = 2 * time.Minute
)

// An answer about a large profile takes its time.
const writeTimeout = 5 * time.Minute

// server shows pages to one user.
type server struct {
	options Options
	errors  io.Writer
}

// serve serves the pages until ctx is done.
func (s *server) serve(ctx context.Context, l net.Listener, pages http.Handler) error {
	d, guests := newDoor(l.Addr()), &guests{most: maxConnections}
	server := &http.Server{
		Handler:           d.guard(http.StripPrefix(strings.TrimSuffix(d.path, "/"), pages)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       guests.welcome,
		ConnState:         guests.changed,
		ErrorLog:          log.New(s.errors, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if s.options.Ready != nil {
		s.options.Ready(d.url(l.Addr(), "key", d.key))
	}
	if s.options.Browser {
		s.openBrowser(d.url(l.Addr(), "ticket", d.ticket))
	}
	warmed := make(chan struct{})
	go func() {
		defer close(warmed)
		web.Warm(ctx, pages)
	}()
	defer func() { <-warmed }()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// plain passes on messages, each of which is one Write, as plain text.
type plain struct{ to io.Writer }

func (p plain) Write(b []byte) (int, error) {
	if _, err := fmt.Fprintln(p.to, plaintext.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
