package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// maxPlan is how many bytes a plan may have.
const maxPlan = 2 << 20

// uploading lets those through who may bring files.
func (s *Server) uploading(f answer) answer {
	return func(w *exchange, r *http.Request, who caller) error {
		if s.ReadOnly {
			return fail(http.StatusForbidden, "this server takes no files")
		}
		if _, ok := who.trust(); !ok {
			return who.lacks(UploadCI, UploadAgent, Admin)
		}
		return f(w, r, who)
	}
}

// plan answers which of the files of a client are wanted.
func (s *Server) plan(w *exchange, r *http.Request, who caller) error {
	var p api.Plan
	if err := readJSON(w, r, maxPlan, &p); err != nil {
		return err
	}
	if len(p.Files) > api.MaxPlan {
		return fail(http.StatusRequestEntityTooLarge, "%d files in a plan, at most %d", len(p.Files), api.MaxPlan)
	}
	out := api.Planned{Files: make([]api.PlannedFile, len(p.Files))}
	err := parallel(r.Context(), len(p.Files), func(i int) (err error) {
		out.Files[i], err = s.planFile(r, who, p.Files[i])
		return err
	})
	if err != nil {
		return err
	}
	return s.writeJSON(w, out)
}

func (s *Server) planFile(r *http.Request, who caller, f api.PlanFile) (api.PlannedFile, error) {
	refuse := func(msg string) (api.PlannedFile, error) {
		return api.PlannedFile{Action: api.Refuse, Message: msg}, nil
	}
	switch {
	case f.SHA256 != "" && !store.IsObject(f.SHA256):
		return refuse("its sha256 is none")
	case f.ID.IsZero() || f.ID.Kind() == buildid.HTL:
		return refuse("it has no identity")
	case f.Size > s.maxFile():
		return refuse("it is larger than " + strconv.FormatInt(s.maxFile(), 10) + " bytes")
	}
	m, err := s.Store.Manifest(r.Context(), f.ID)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return api.PlannedFile{}, err
	}
	trust, _ := who.trust()
	has := func() bool { return m.Has(f.SHA256, trust) }
	if m != nil && f.SHA256 != "" && has() { // the manifest says so
		there, err := s.hasBytes(r.Context(), m, f.SHA256)
		if err != nil {
			return api.PlannedFile{}, err
		}
		has = func() bool { return there }
	}
	if f.SHA256 == "" {
		has = func() bool { return len(m.Files) > 0 }
	}
	if m != nil && has() {
		// The client will not send it: this is a use, which has to be known before it relies on it. So is its name.
		o := store.Origin{Trust: trust, Via: "push", Who: who.name, Path: f.Name, Archive: f.Archive, Package: f.Package, Build: f.Build}
		note := func() error { return s.Store.Use(r.Context(), m) }
		if f.SHA256 != "" && !m.HasName(f.SHA256, o) {
			note = func() error { return s.Store.AddOrigin(r.Context(), f.ID, f.SHA256, o) }
		}
		if err := note(); !errors.Is(err, blob.ErrNotExist) {
			return api.PlannedFile{Action: api.Skip, Disputed: len(m.Disputed()), Served: serves(m, f.SHA256), Alone: isAlone(m, f.SHA256), Nameless: isNameless(m, f.SHA256)}, err
		}
	}
	if f.SHA256 == "" {
		return refuse("no file with this identity is here")
	}
	u, err := s.Store.Staged(r.Context(), who.name, f.SHA256)
	if err != nil {
		return api.PlannedFile{}, err
	}
	return api.PlannedFile{Action: api.Upload, Have: u.Size()}, nil
}

// hasBytes reports whether the store has the bytes of a file that a manifest lists.
func (s *Server) hasBytes(ctx context.Context, m *store.Manifest, object string) (bool, error) {
	for i := range m.Files {
		if f := &m.Files[i]; f.Object == object {
			return s.Store.HasBytes(ctx, f)
		}
	}
	return false, nil
}

func (s *Server) maxFile() int64 {
	if s.Store.MaxFile > 0 {
		return s.Store.MaxFile
	}
	return store.DefaultMaxFile
}

// claimOf returns what the client says of a file, in the query.
func claimOf(q url.Values, object string, who caller) (c store.Claim, err error) {
	if !store.IsObject(object) {
		return c, fail(http.StatusBadRequest, "%.100q is no SHA-256 in lower-case hexadecimal", object)
	}
	c.Object = object
	if text := q.Get("id"); text != "" {
		if c.ID, err = parseID(text); err != nil {
			return c, err
		}
	}
	trust, _ := who.trust()
	c.Origin = store.Origin{Trust: trust, Via: "push", Who: who.name, Path: q.Get("name"), Archive: q.Get("archive"), Package: q.Get("package"), Build: q.Get("build"), Modified: modifiedOf(q)}
	return c, nil
}

// modifiedOf returns when a client says that a file was changed last, in seconds since 1970; zero where it does not.
func modifiedOf(q url.Values) time.Time {
	if n, err := strconv.ParseInt(q.Get("modified"), 10, 64); err == nil {
		return time.Unix(n, 0)
	}
	return time.Time{}
}

// whole takes a file in one request.
func (s *Server) whole(w *exchange, r *http.Request, who caller) error {
	c, err := claimOf(r.URL.Query(), r.PathValue("sha256"), who)
	if err != nil {
		return err
	}
	if err := s.files.enter(w); err != nil {
		return err
	}
	defer s.files.leave(w)
	body, finish, err := s.body(w, r, s.maxFile())
	if err != nil {
		return err
	}
	defer finish()
	spool, err := s.Store.Spool(r.Context(), body)
	if err != nil {
		return s.arrival(r, err)
	}
	defer spool.Close()
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	return s.publish(w, r, spool, c)
}

// arrival returns why a file did not arrive: that of the client where it broke off.
func (s *Server) arrival(r *http.Request, err error) error {
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &statusError{status: http.StatusBadRequest, err: err}
	}
	return err
}

// body returns the content of a request of at most most bytes, which may be compressed.
func (s *Server) body(w *exchange, r *http.Request, most int64) (io.Reader, func(), error) {
	body, err := s.counted(w, r, most)
	if err != nil {
		return nil, nil, err
	}
	switch e := r.Header.Get("Content-Encoding"); e {
	case "", "identity":
		return body, func() {}, nil
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(16<<20), zstd.WithDecoderMaxMemory(uint64(most)+1))
		if err != nil {
			return nil, nil, err
		}
		return &decoding{&tallied{z, body.t, 0}, e}, z.Close, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, nil, encodingError(e, err)
		}
		return &decoding{&tallied{&atMost{z, most}, body.t, 0}, e}, func() {}, nil
	default:
		return nil, nil, fail(http.StatusUnsupportedMediaType, "Content-Encoding %.40q: zstd and gzip are known", e)
	}
}

// decoding is a body that the client compressed. That it cannot be decompressed is the client's
// failure, whatever the decoder calls it.
type decoding struct {
	z        io.Reader
	encoding string
}

func (d *decoding) Read(p []byte) (int, error) {
	n, err := d.z.Read(p)
	if err != nil && err != io.EOF {
		err = encodingError(d.encoding, err)
	}
	return n, err
}

// atMost fails behind so many bytes.
type atMost struct {
	r    io.Reader
	left int64
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.r.Read(p[:min(int64(len(p)), a.left+1)])
	if a.left -= int64(n); a.left < 0 {
		return 0, fmt.Errorf("%w: it is larger, decompressed", store.ErrTooLarge)
	}
	return n, err
}

// encodingError returns why a body cannot be decompressed.
func encodingError(encoding string, err error) error {
	var tooLarge *http.MaxBytesError
	var limit *limitError
	if errors.As(err, &tooLarge) || errors.As(err, &limit) || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, store.ErrTooLarge) {
		return err
	}
	return &statusError{status: http.StatusBadRequest, err: fmt.Errorf("Content-Encoding %s: %w", encoding, err)}
}

// counted returns the bytes of a request, of which the client may send so many.
func (s *Server) counted(w *exchange, r *http.Request, most int64) (*tallied, error) {
	t, err := s.receives(w, r)
	if err != nil {
		return nil, err
	}
	return &tallied{&counting{http.MaxBytesReader(w, r.Body, most), s.metrics}, t, 0}, nil
}

// counting counts the bytes of uploads.
type counting struct {
	r io.Reader
	m *metrics
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.m.add(int64(n), "hallmark_received_bytes_total")
	return n, err
}

// publish verifies and publishes a file that has arrived.
func (s *Server) publish(w *exchange, r *http.Request, spool *store.Spool, c store.Claim) error {
	a, err := s.Store.Add(r.Context(), spool, c)
	if err != nil {
		s.metrics.add(1, "hallmark_files_refused_total", "reason", strconv.Itoa(statusOf(err)))
		return err
	}
	if a.New {
		s.metrics.add(1, "hallmark_files_added_total", "via", "push")
	}
	disputed := a.Manifest.Disputed()
	if len(disputed) > 0 && a.New {
		s.Log.Warn("files of different code have one identity", "id", a.ID.String(), "files", len(a.Manifest.Files), "who", c.Origin.Who)
	}
	status := http.StatusOK
	if a.New {
		status = http.StatusCreated
	}
	out := api.Stored{ID: a.ID, SHA256: a.Object, New: a.New, Disputed: len(disputed), Served: serves(a.Manifest, a.Object), Alone: isAlone(a.Manifest, a.Object), Nameless: isNameless(a.Manifest, a.Object)}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return s.writeJSON(w, out)
}

// serves reports whether a file is the executable or the debug file that is served.
func serves(m *store.Manifest, object string) bool {
	exe, debug := m.Executable(), m.DebugInfo()
	return exe != nil && exe.Object == object || debug != nil && debug.Object == object
}

// isAlone reports whether a file is the debug file that is served, without an executable.
func isAlone(m *store.Manifest, object string) bool {
	return m.Executable() == nil && serves(m, object)
}

// isNameless reports whether a file is alone and may not name the code of its program.
func isNameless(m *store.Manifest, object string) bool {
	return isAlone(m, object) && !m.DebugFileNames()
}

// part takes a part of a file. A part is small, so that what is lost with a connection is.
func (s *Server) part(w *exchange, r *http.Request, who caller) error {
	object := r.PathValue("sha256")
	off, err := strconv.ParseInt(r.PathValue("offset"), 10, 64)
	if err != nil || off < 0 || !store.IsObject(object) {
		return fail(http.StatusBadRequest, "not /v1/uploads/SHA256/OFFSET")
	}
	if r.ContentLength <= 0 || r.ContentLength > api.MaxChunk {
		return fail(http.StatusRequestEntityTooLarge, "a part has 1 to %d bytes and says how many", api.MaxChunk)
	}
	u, err := s.Store.Staged(r.Context(), who.name, object)
	if err != nil {
		return err
	}
	body, err := s.counted(w, r, api.MaxChunk)
	if err != nil {
		return err
	}
	err = u.Append(r.Context(), off, body, r.ContentLength)
	var offset *store.OffsetError
	if errors.As(err, &offset) {
		return &statusError{status: http.StatusConflict, err: err}
	}
	if err != nil {
		return s.arrival(r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// commit publishes a file whose parts have all arrived.
func (s *Server) commit(w *exchange, r *http.Request, who caller) error {
	c, err := claimOf(r.URL.Query(), r.PathValue("sha256"), who)
	if err != nil {
		return err
	}
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	u, err := s.Store.Staged(r.Context(), who.name, c.Object)
	if err != nil {
		return err
	}
	spool, err := u.Spool(r.Context())
	if err != nil {
		return err
	}
	defer spool.Close()
	err = s.publish(w, r, spool, c)
	var mismatch *store.MismatchError
	var format *store.FormatError
	if err == nil || errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Claimed, "sha256:") || errors.As(err, &format) {
		if err := u.Remove(r.Context()); err != nil {
			s.Log.Warn("parts of an upload stay", "error", err)
		}
	}
	return err
}
