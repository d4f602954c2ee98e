package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/store"
)

// open opens a file of an identity. Where the store has lost its bytes, this machine and upstream servers are asked for
// them.
func (s *Server) open(r *http.Request, id buildid.ID, a artefact, f *store.File) (*store.Object, error) {
	o, err := s.Store.Object(r.Context(), f.Stored())
	var broken *store.BrokenError
	if !errors.As(err, &broken) {
		return o, err
	}
	if err := s.regain(r, id, a); err != nil {
		return nil, err
	}
	return s.Store.Object(r.Context(), f.Stored())
}

// regain asks this machine and upstream servers for a file whose bytes the store has lost. That they do not have it is
// no error.
func (s *Server) regain(r *http.Request, id buildid.ID, a artefact) error {
	for _, get := range []func(*http.Request, buildid.ID, artefact) error{s.fromLocal, s.fromUpstream} {
		if err := get(r, id, a); err != nil {
			return err
		}
		if m, err := s.Store.Manifest(r.Context(), id); err == nil && !s.Store.IsBroken(m) {
			return nil
		}
	}
	return nil
}

// noteBroken reports an object that was found broken.
func (s *Server) noteBroken(b store.Broken) {
	kind := "damaged"
	if b.Missing {
		kind = "missing"
	}
	s.metrics.add(1, "hallmark_broken_total", "kind", kind)
	s.Log.Warn("the store has lost the bytes of a file: push it again", "build_id", b.ID, "path", b.Path, "package", b.Package, "sha256", b.Object, "kind", kind, "error", b.Why)
}

// noteDamage reports a list that was found damaged. It counts as none.
func (s *Server) noteDamage(key string, why error) {
	s.metrics.add(1, "hallmark_broken_total", "kind", "list")
	s.Log.Warn("the store has a damaged list: push again what it listed", "key", key, "error", why)
}

// noteStray reports a file in the store that is none of it.
func (s *Server) noteStray(key string) {
	s.Log.Warn("a file in the store is none of it, and stays", "key", key)
}

// maxBrokenShown is how many broken files a health report names.
const maxBrokenShown = 20

// brokenFiles returns some of the files whose bytes are lost, for a health report, and how many there are.
func (s *Server) brokenFiles() (some []api.BrokenFile, n int) {
	all := s.Store.Broken()
	for _, b := range all[:min(len(all), maxBrokenShown)] {
		some = append(some, api.BrokenFile{SHA256: b.Object, Missing: b.Missing, Found: b.Found, ID: b.ID, Path: b.Path, Package: b.Package})
	}
	return some, len(all)
}

// checkShare is which part of the time of one processor a check of the store takes at most, and idlePause how long it
// waits while there are requests.
const (
	checkShare = 20
	idlePause  = time.Second
	busyPauses = 30 // of these, one after another: then it goes on all the same
)

// check reads what the store has, slowly, if no server of the store has done so for a while.
func (s *Server) check(ctx context.Context) {
	ok, err := s.Store.TakeTurn(ctx, store.CheckTurn, s.CheckEvery)
	if ok && err == nil {
		start := time.Now()
		var done store.Checked
		err = containedWork(ctx, func(ctx context.Context) (err error) {
			done, err = s.Store.Check(ctx, store.Checking{Pause: s.idle})
			return err
		})
		s.Log.Info("checked the store", "objects", done.Objects, "bytes", done.Bytes, "broken", done.Broken, "mended", done.Mended, "time", time.Since(start))
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Error("the store was not checked to its end", "error", err)
	}
}

// idle waits behind a step of a check that took some time, and longer while there are requests.
func (s *Server) idle(ctx context.Context, took time.Duration) error {
	pause := took * (checkShare - 1)
	for range busyPauses {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		if s.gates.known.inUse()+s.gates.strangers.inUse() == 0 {
			break
		}
		pause = idlePause
	}
	return ctx.Err()
}
