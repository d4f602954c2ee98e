package view

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
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

// serve serves the driver's pages until ctx is done.
func (s *source) serve(ctx context.Context, l net.Listener, pages map[string]http.Handler) error {
	server := &http.Server{Handler: handler(s.pages(pages)), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if s.options.Ready != nil {
		s.options.Ready("http://" + l.Addr().String() + "/ui/")
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler puts the pages under /ui/, as the driver's links want it.
func handler(pages map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, page := range pages {
		if path == "/" {
			path = "/{$}"
		}
		mux.Handle("/ui"+path, http.StripPrefix("/ui", page))
	}
	mux.Handle("/{$}", http.RedirectHandler("/ui/", http.StatusTemporaryRedirect))
	return onlyHere(mux)
}

// onlyHere refuses what a page of another site makes a browser on this machine
// ask for: under a host name of its own that it let lead here (DNS rebinding),
// or in the background. Links to the pages may be anywhere.
func onlyHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		foreign := (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
		if foreign || !isLoopback(r.Host) {
			http.Error(w, "This page is for the machine that it runs on.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether the value of a Host header means this machine.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
