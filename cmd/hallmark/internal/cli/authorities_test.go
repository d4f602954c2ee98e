package cli

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"hallmark/internal/certtest"
	"hallmark/internal/testenv"
	"hallmark/server"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// TestAuthoritiesResumed has a client resume a session, and try to when its authority is in the file no longer.
func TestAuthoritiesResumed(t *testing.T) {
	ours, others := certtest.NewAuthority(t), certtest.NewAuthority(t)
	host := certtest.Write(t, ours.Issue(t, x509.Certificate{DNSNames: []string{"localhost"}}))
	opt := serveOptions{cert: host, key: host, clientCA: ours.Write(t)}
	security, _, err := opt.tls()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", security)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte("x")) // with the ticket of the session
			}()
		}
	}()
	mine := ours.Issue(t, x509.Certificate{DNSNames: []string{"client"}})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := &tls.Config{MaxVersion: version, RootCAs: ours.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{mine}, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		connect := func() (resumed bool, err error) {
			c, err := tls.DialWithDialer(&net.Dialer{Timeout: testenv.Patience}, "tcp", l.Addr().String(), client)
			if err != nil {
				return false, err
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
				return false, err
			}
			_, err = io.ReadFull(c, make([]byte, 1))
			return c.ConnectionState().DidResume, err
		}
		become := func(authority *certtest.Authority) {
			b, err := os.ReadFile(authority.Write(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(opt.clientCA, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		become(ours)
		for i, want := range []bool{false, true} {
			if resumed, err := connect(); err != nil || resumed != want {
				t.Errorf("TLS %x, connection %d: resumed %v, %v", version, i, resumed, err)
			}
		}
		become(others)
		if resumed, err := connect(); err == nil {
			t.Errorf("TLS %x: a client of an authority that is gone, resumed %v", version, resumed)
		}
	}
}

// TestAuthoritiesOfOpenConnections has a client ask by a connection that it made before its authority was taken out of the file.
func TestAuthoritiesOfOpenConnections(t *testing.T) {
	ours, others := certtest.NewAuthority(t), certtest.NewAuthority(t)
	host := certtest.Write(t, ours.Issue(t, x509.Certificate{DNSNames: []string{"localhost"}}))
	opt := serveOptions{cert: host, key: host, clientCA: ours.Write(t)}
	security, admits, err := opt.tls()
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s := httptest.NewUnstartedServer(server.New(server.Config{Store: &store.Store{Blobs: blobs, Scratch: t.TempDir()}, Open: true, Admits: admits}))
	s.TLS, s.EnableHTTP2 = security, true
	s.StartTLS()
	defer s.Close()
	mine := ours.Issue(t, x509.Certificate{DNSNames: []string{"client"}})
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{mine}}}
		defer transport.CloseIdleConnections()
		get := func() int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				return 0
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			if (resp.ProtoMajor == 2) != http2 {
				t.Errorf("%s", resp.Proto)
			}
			return resp.StatusCode
		}
		for _, step := range []struct {
			authority *certtest.Authority
			want      []int
		}{{ours, []int{200, 200}}, {others, []int{401, 0}}, {ours, []int{200}}} {
			b, err := os.ReadFile(step.authority.Write(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(opt.clientCA, b, 0o600); err != nil {
				t.Fatal(err)
			}
			for i, want := range step.want {
				if got := get(); got != want {
					t.Errorf("HTTP/2 %v, request %d: %d, want %d", http2, i, got, want)
				}
			}
		}
	}
}
