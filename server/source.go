package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// maxSource is how many bytes a source file may have.
const maxSource = 64 << 20

// source answers with a source file, from packages and uploads: a path in debug information
// never leads to a file of this machine.
func (s *Server) source(w *exchange, r *http.Request, id buildid.ID, name string) error {
	if name == "" || len(name) > 4096 {
		return fail(http.StatusBadRequest, "no path of a source file")
	}
	// Clients send an absolute path with or without its slash, and a relative one as it is.
	names := []string{name}
	if !strings.HasPrefix(name, "/") {
		names = append(names, "/"+name)
	}
	m, err := s.manifestOf(r, id)
	if err != nil {
		return err
	}
	s.used(w.who.name, m)
	for _, n := range names {
		f, err := s.findSource(r, m, n)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		o, err := s.Store.Object(r.Context(), f.Stored())
		if err != nil {
			return err
		}
		defer o.Close()
		h := w.Header()
		h.Set("X-DEBUGINFOD-FILE", headerText(f.Path))
		if f.Origin.Archive != "" {
			h.Set("X-DEBUGINFOD-ARCHIVE", headerText(f.Origin.Archive))
		}
		return serve(w, r, f.Object, o.Size(), f.Origin.LastModified(), o.Stream())
	}
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, fmt.Sprintf("%.200q", n))
	}
	return fail(http.StatusNotFound, "%v: no source file %s is known", id, strings.Join(quoted, " or "))
}

// manifestOf returns what is known of an identity, from the store or from this machine.
func (s *Server) manifestOf(r *http.Request, id buildid.ID) (*store.Manifest, error) {
	for _, a := range []artefact{debugFile, executable} {
		m, _, err := s.find(r, id, a)
		if m != nil {
			return m, nil
		}
		if err != nil && statusOf(err) != http.StatusNotFound {
			return nil, err
		}
	}
	return nil, fail(http.StatusNotFound, "%v: no file with this build ID is known", id)
}

// findSource returns a source file of the store, into which those of this machine's packages and
// of upstream servers are taken when they are asked for.
func (s *Server) findSource(r *http.Request, m *store.Manifest, name string) (store.SourceFile, error) {
	f, err := s.Store.Source(r.Context(), m, name)
	if s.ReadOnly || !errors.Is(err, blob.ErrNotExist) {
		return f, err
	}
	for _, get := range []func(*http.Request, *store.Manifest, string) error{s.sourceFromLocal, s.sourceFromUpstream} {
		if err := get(r, m, name); err != nil {
			return f, err
		}
		if f, err = s.Store.Source(r.Context(), m, name); !errors.Is(err, blob.ErrNotExist) {
			return f, err
		}
	}
	return f, err
}

// sourceFromLocal takes into the store what this machine's packages have of a source file. Several clients may wait for the
// same one: all but the first find it in the store.
func (s *Server) sourceFromLocal(r *http.Request, m *store.Manifest, name string) error {
	ctx := r.Context()
	if s.Local == nil {
		return nil
	}
	isThere := false
	var slot *slot
	defer func() { slot.release() }()
	content, origin, ok, err := s.Local.Source(ctx, m, name, func() (end func(), err error) {
		if slot != nil {
			return func() {}, nil
		}
		if slot, err = s.unpacks.take(ctx, clientOf(ctx), 1, unpackTime); err != nil {
			return nil, err
		}
		_, err = s.Store.Source(ctx, m, name)
		if isThere = err == nil; isThere {
			return nil, errors.New("it has come meanwhile")
		}
		return func() {}, nil
	})
	if isThere {
		return nil
	}
	if err != nil || !ok {
		return err
	}
	defer content.Close()
	spool, err := s.Store.Spool(ctx, content)
	if err != nil {
		return err
	}
	defer spool.Close()
	return s.Store.AddBuildSource(ctx, origin.Build, name, spool, origin)
}

// sourceFromUpstream asks other servers for a source file, and takes it into the store. That none has it
// is no error.
func (s *Server) sourceFromUpstream(r *http.Request, m *store.Manifest, name string) error {
	if !strings.HasPrefix(name, "/") { // of a relative path they know nothing
		return nil
	}
	file := debuginfod.Source(name)
	return s.askUpstream(r, m.ID, file, func(ctx context.Context, spool *store.Spool, o store.Origin) error {
		o.Path = name
		return s.Store.AddSource(ctx, m, name, spool, o)
	})
}

// putSource takes a source file of an identity.
func (s *Server) putSource(w *exchange, r *http.Request, who caller) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	name := r.URL.Query().Get("path")
	if name == "" || len(name) > 4096 {
		return fail(http.StatusBadRequest, "path is missing in the query, or too long")
	}
	m, err := s.Store.Manifest(r.Context(), id)
	if err != nil {
		return err
	}
	body, finish, err := s.body(w, r, maxSource)
	if err != nil {
		return err
	}
	defer finish()
	spool, err := s.Store.Spool(r.Context(), http.MaxBytesReader(w, io.NopCloser(body), maxSource))
	if err != nil {
		return s.arrival(r, err)
	}
	defer spool.Close()
	trust, _ := who.trust()
	if err := s.Store.AddSource(r.Context(), m, name, spool, store.Origin{Trust: trust, Via: "push", Who: who.name, Path: name, Modified: modifiedOf(r.URL.Query())}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
