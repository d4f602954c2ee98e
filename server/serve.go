package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"hallmark/server/store"
	"hallmark/server/symbols"
)

// Times that a connection may take.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	graceTime  = 30 * time.Second // for requests under way when the server ends
	maxHeader  = 64 << 10         // bytes
	maxStreams = 100              // requests at once on a connection of HTTP/2
)

// httpServer returns what answers on connections.
func (s *Server) httpServer() *http.Server {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ConnState: s.conns.onState,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: paceTime, SendPingTimeout: paceTime},
	}
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true) // which gRPC without TLS is
	return h
}

// Serve answers on l until ctx is done, and then those requests that are under way.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := s.httpServer()
	var house sync.WaitGroup
	house.Go(func() { s.keepHouse(ctx) })
	passing, stopPassing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPassing()
	if s.Forward != nil {
		house.Go(func() { s.Forward.Run(passing) })
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Log.Info("ending")
	end := time.Now().Add(graceTime)
	grace, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	err := h.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close()
	}
	if s.Forward != nil {
		// What has come is passed on, as far as there is time.
		s.Forward.Close()
		defer time.AfterFunc(time.Until(end), stopPassing).Stop()
	}
	house.Wait()
	if s.Forward != nil && s.Forward.Queued() > 0 {
		s.Log.Error("profiles are lost that could not be passed on", "bytes", s.Forward.Queued())
	}
	last, cancel := context.WithTimeout(context.Background(), usageEnd)
	defer cancel()
	s.writeUsage(last)
	return err
}

const (
	houseTime = time.Hour        // between looks for what nobody needs any more
	usageEnd  = 10 * time.Second // for the last uses when the server ends
)

// keepHouse writes last uses, and removes what nobody needs any more, until ctx is done.
func (s *Server) keepHouse(ctx context.Context) {
	if s.ReadOnly {
		return
	}
	var uses sync.WaitGroup
	defer uses.Wait()
	uses.Go(func() {
		repeat(ctx, usageTime, func() { s.writeUsage(ctx) })
	})
	if s.CheckEvery > 0 {
		uses.Go(func() {
			repeat(ctx, houseTime, func() { s.check(ctx) })
		})
	}
	repeat(ctx, houseTime, func() {
		if err := s.Store.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("leftovers of uploads stay", "error", err)
		}
		if s.CollectEvery > 0 {
			s.collect(ctx)
		}
	})
}

// repeat calls a function now and with a pause in between until ctx is done.
func repeat(ctx context.Context, pause time.Duration, do func()) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// collect removes what need not be kept, if no server of the store has done so for a while.
func (s *Server) collect(ctx context.Context) {
	ok, err := s.Store.TakeTurn(ctx, store.CollectTurn, s.CollectEvery)
	if ok && err == nil {
		start := time.Now()
		var c store.Collected
		err = containedWork(ctx, func(ctx context.Context) (err error) {
			c, err = s.Store.Collect(ctx, store.Collection{Retention: s.Retention, IndexVersion: symbols.IndexVersion, OnRemove: func(r store.Removed) {
				s.Log.Info("removed", "id", r.ID.String(), "reason", r.Reason, "last_use", r.LastDay(), "bytes", r.Size)
			}})
			return err
		})
		for kind, n := range map[string]int64{"identity": c.Removed, "object": c.Objects, "index": c.Indexes, "source": c.Sources, "leftover": c.Leftover, "profile": c.Profiles} {
			s.metrics.add(n, "hallmark_collected_total", "kind", kind)
		}
		s.metrics.add(c.Freed, "hallmark_collected_bytes_total")
		s.stored.Store(c.Size)
		s.Log.Info("collected garbage", "removed", c.Removed, "objects", c.Objects, "bytes", c.Freed, "kept", c.Kept, "size", c.Size, "broken", c.Broken, "time", time.Since(start))
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Error("garbage stays", "error", err)
	}
}
