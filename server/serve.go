package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Times that a connection may take.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	graceTime  = 30 * time.Second // for requests under way when the server ends
	maxHeader  = 64 << 10         // bytes
	stallTime  = time.Minute      // in which a client has to take or send something
)

// Serve answers on l until ctx is done, and then those requests that are under way.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	go s.keepHouse(ctx)
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Log.Info("ending")
	grace, cancel := context.WithTimeout(context.Background(), graceTime)
	defer cancel()
	err := h.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close()
	}
	return err
}

// houseTime is how often what nobody needs any more is removed.
const houseTime = time.Hour

func (s *Server) keepHouse(ctx context.Context) {
	if s.ReadOnly {
		return
	}
	t := time.NewTicker(houseTime)
	defer t.Stop()
	for {
		if err := s.Store.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("leftovers of uploads stay", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
