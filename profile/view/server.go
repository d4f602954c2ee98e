package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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

// Server shows pages to one user. The zero value serves at a free port, and opens no browser.
type Server struct {
	Address string           // host and port: 127.0.0.1:0 where it is empty
	Sources string           // directory whose files are shown as source lines; empty for none
	Browser bool             // open the user's browser
	Ready   func(url string) // called when the pages are there, with the URL that opens them; nil for no call
	Errors  io.Writer        // gets what goes wrong later, a line each; nil discards it
}

// patience is how long a profile may take before the pages are there without it.
const patience = 25 * time.Millisecond

// Serve serves pages about the profile that open returns until ctx is done, which is no error.
// Port 0 takes a free one; the host must be this machine's loopback interface. The URL that Ready
// gets contains a key: whoever has it sees the pages.
//
// A browser takes as long to start as a large profile takes to open. So both happen at once, and
// the first questions wait. An error of open ends the server; if it comes soon, Ready is not called.
// When ctx is done Serve returns at once, and open may go on.
func (s Server) Serve(ctx context.Context, open func() (*web.Profile, error)) error {
	l, err := listen(cmp.Or(s.Address, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	defer l.Close()
	var sources web.Texts
	if s.Sources != "" {
		dir, err := os.OpenFile(s.Sources, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		sources = &texts{dir, s.Sources}
	}
	shown := &coming{opened: make(chan struct{})}
	go func() {
		defer close(shown.opened)
		if shown.profile, shown.err = open(); shown.err == nil {
			shown.profile.Texts = sources
		}
	}()
	select {
	case <-shown.opened:
	case <-time.After(patience):
	}
	if !shown.failed() {
		err = s.serve(ctx, l, shown)
	}
	select {
	case <-shown.opened:
		return cmp.Or(err, shown.err)
	case <-ctx.Done():
		return err
	}
}

// coming is a source of one profile, which is there when opened is closed.
type coming struct {
	opened  chan struct{}
	profile *web.Profile
	err     error
}

func (c *coming) Open(ctx context.Context, id, base string) (*web.Profile, error) {
	if id != "" || base != "" {
		return nil, web.ErrUnknown
	}
	select {
	case <-c.opened:
		return c.profile, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// failed reports whether it is known by now that there is no profile.
func (c *coming) failed() bool {
	select {
	case <-c.opened:
		return c.err != nil
	default:
		return false
	}
}

// serve serves the pages until ctx is done, or the profile cannot be opened.
func (s *Server) serve(ctx context.Context, l net.Listener, shown *coming) error {
	if s.Errors == nil {
		s.Errors = io.Discard
	}
	problems := plain{s.Errors}
	d, guests, pages := newDoor(l.Addr()), &guests{most: maxConnections}, web.Handler(shown, web.NewTurns())
	server := &http.Server{
		Handler:           d.guard(http.StripPrefix(strings.TrimSuffix(d.path, "/"), pages)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       guests.welcome,
		ConnState:         guests.changed,
		ErrorLog:          log.New(problems, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if s.Ready != nil {
		s.Ready(d.url(l.Addr(), "key", d.key))
	}
	if s.Browser {
		openBrowser(d.url(l.Addr(), "ticket", d.ticket), problems)
	}
	warmed := make(chan struct{})
	go func() {
		defer close(warmed)
		web.Warm(ctx, pages)
		if shown.failed() {
			leave(server)
		}
	}()
	defer func() { <-warmed }()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// leave ends a server when those who wait have their answers, which say why.
func leave(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// plain passes on messages, each of which is one Write, as plain text.
type plain struct{ to io.Writer }

func (p plain) Write(b []byte) (int, error) {
	if _, err := fmt.Fprintln(p.to, plaintext.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
