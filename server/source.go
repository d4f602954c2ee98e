package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"hallmark/buildid"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// maxSource is how many bytes a source file may have.
const maxSource = 64 << 20

// source answers with a source file, from packages and uploads: a path in debug information
// never leads to a file of this machine.
func (s *Server) source(w http.ResponseWriter, r *http.Request, id buildid.ID, name string) error {
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
	s.used(r.Context(), m)
	for _, n := range names {
		f, err := s.findSource(r.Context(), m, n)
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
		return serve(w, r, f.Object, o.Size(), f.Origin.Time, o.Stream())
	}
	return fail(http.StatusNotFound, "%v: no source file %.200q is known", id, name)
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

// findSource returns a source file of the store, into which those of this machine's packages
// are taken when they are asked for.
func (s *Server) findSource(ctx context.Context, m *store.Manifest, name string) (store.SourceFile, error) {
	f, err := s.Store.Source(ctx, m, name)
	if err == nil || !errors.Is(err, blob.ErrNotExist) || s.Local == nil || s.ReadOnly {
		return f, err
	}
	r, origin, ok, localErr := s.Local.Source(ctx, m.ID, m, name)
	if localErr != nil || !ok {
		return f, errors.Join(err, localErr)
	}
	defer r.Close()
	spool, err := s.Store.Spool(ctx, r)
	if err != nil {
		return f, err
	}
	defer spool.Close()
	if err := s.Store.AddBuildSource(ctx, origin.Build, name, spool, origin); err != nil {
		return f, err
	}
	return s.Store.Source(ctx, m, name)
}

// putSource takes a source file of an identity.
func (s *Server) putSource(w http.ResponseWriter, r *http.Request, who caller) error {
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
	body, finish, err := s.body(w, r, who, maxSource)
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
	if err := s.Store.AddSource(r.Context(), m, name, spool, store.Origin{Trust: trust, Via: "push", Who: who.name, Path: name}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
