package main

import (
	"io"
	"net"
	"net/http"
)

// newReceiver returns the address of a server that takes what the OpenTelemetry profiler sends
// (OTLP, gRPC without encryption), and drops it.
func newReceiver() (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: http.HandlerFunc(accept), Protocols: protocols}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), nil
}

// accept answers a call with an empty message and no error.
func accept(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write(make([]byte, 5))
	w.Header().Set("Grpc-Status", "0")
}
