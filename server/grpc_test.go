package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"hallmark/server/forward"
)

// framed returns a message as gRPC sends it.
func framed(b []byte, isCompressed bool) []byte {
	prefix := make([]byte, grpcPrefix, grpcPrefix+len(b))
	if isCompressed {
		prefix[0] = 1
	}
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(b)))
	return append(prefix, b...)
}

// TestGRPC has messages come by gRPC over HTTP/2 without TLS. The client of grpc-go is tried in bench/otlp.
func TestGRPC(t *testing.T) {
	p := program(t)
	c := newCollector(t)
	tokens, secrets := testTokens(t)
	s, base := startForwarding(t, c, func(conf *Config) { conf.Tokens = tokens })
	upload(t, base, p.full, "", "Authorization", "Bearer "+secrets[UploadCI]).want(t, 201)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The forwarder runs already, and only one may.
	other := New(Config{Store: s.Store, Symbols: s.Symbols, Tokens: tokens})
	other.Forward = s.Forward
	h := &http.Server{Handler: other, Protocols: new(http.Protocols)}
	h.Protocols.SetUnencryptedHTTP2(true)
	go h.Serve(l)
	defer h.Close()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()

	good := encoded(t, bareProfile(t, p), false)
	for name, r := range map[string]struct {
		body     []byte
		header   []string
		code     string
		contains string
	}{
		"plain":            {framed(good, false), nil, "0", ""},
		"gzip":             {framed(gzipped(good), true), []string{"Grpc-Encoding", "gzip"}, "0", ""},
		"empty":            {framed(nil, false), nil, "0", ""},
		"another encoding": {framed(good, true), []string{"Grpc-Encoding", "snappy"}, "12", "snappy"},
		"no gzip":          {framed(good, true), []string{"Grpc-Encoding", "gzip"}, "3", "gzip"},
		"a bomb":           {framed(gzipped(make([]byte, maxMessage+1)), true), []string{"Grpc-Encoding", "gzip"}, "8", "larger"},
		"too long":         {[]byte{0, 0xff, 0xff, 0xff, 0xff, 1}, nil, "8", "4294967295"},
		"cut":              {framed(good, false)[:len(good)], nil, "3", "EOF"},
		"no prefix":        {[]byte{0, 0}, nil, "3", "EOF"},
		"two messages":     {append(framed(good, false), framed(good, false)...), nil, "3", "more than one"},
		"damaged":          {framed([]byte{0xff, 0xff}, false), nil, "3", "OTLP"},
		"a circle":         {framed(good, false), []string{forward.HopsHeader, "8"}, "9", "8 forwarders"},
		"no token":         {framed(good, false), []string{"Authorization", ""}, "16", "token"},
		"another role":     {framed(good, false), []string{"Authorization", "Bearer " + secrets[Read]}, "7", "role"},
		"another type":     {framed(good, false), []string{"Content-Type", "application/json"}, "3", "gRPC"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String()+exportPath, bytes.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		req.Header.Set("Authorization", "Bearer "+secrets[UploadAgent])
		for i := 0; i+1 < len(r.header); i += 2 {
			req.Header.Set(r.header[i], r.header[i+1])
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		code, message := resp.Trailer.Get("Grpc-Status"), ""
		if code == "" { // an answer of headers alone
			code, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
		}
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/grpc" || code != r.code || !strings.Contains(message, r.contains) {
			t.Errorf("%s: %s, code %s %q, want %s %q", name, resp.Status, code, message, r.code, r.contains)
		}
		if code == "0" && !bytes.Equal(body, make([]byte, grpcPrefix)) {
			t.Errorf("%s: the answer is %x", name, body)
		}
		if code == "0" && name != "empty" {
			got := decoded(t, c.next(t))
			if names := namesAt(got.Sample[0].Location[0]); len(names) == 0 || !strings.HasPrefix(names[len(names)-1], "f:") {
				t.Errorf("%s: names %q", name, names)
			}
		}
	}
	if used := other.profiles.bodies.inUse(); used != 0 {
		t.Errorf("%d bytes of the memory of bodies were not given back", used)
	}
	// By HTTP/1.1 there is no gRPC.
	ask(t, "POST", base+exportPath, bytes.NewReader(framed(good, false)), "Content-Type", "application/grpc", "Authorization", "Bearer "+secrets[Admin]).want(t, 200)
	if len(c.came) != 0 {
		t.Error("something was passed on")
	}
}
