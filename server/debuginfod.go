package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/defect"
	"hallmark/internal/elffile"
	"hallmark/internal/regular"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// artefact is one of the files that debuginfod serves for an identity.
type artefact string

const (
	executable artefact = "executable"
	debugFile  artefact = "debuginfo"
)

// of returns the file of a manifest, nil if it has none.
func (a artefact) of(m *store.Manifest) *store.File {
	if a == executable {
		return m.Executable()
	}
	return m.DebugInfo()
}

// buildID answers /buildid/ID/… (debuginfod(8), "WEBAPI").
func (s *Server) buildID(w *exchange, r *http.Request, _ caller) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return fail(http.StatusMethodNotAllowed, "%s of a file", r.Method)
	}
	text, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/buildid/"), "/")
	id, err := parseID(strings.ToLower(text))
	if err != nil {
		return err
	}
	if id.Kind() != buildid.GNU {
		return fail(http.StatusBadRequest, "%v is no build ID", id)
	}
	kind, name, _ := strings.Cut(rest, "/")
	switch kind {
	case string(executable), string(debugFile):
		if name != "" {
			break
		}
		return s.file(w, r, id, artefact(kind))
	case "section":
		return s.section(w, r, id, name)
	case "source":
		return s.source(w, r, id, name)
	}
	return fail(http.StatusNotFound, "/buildid/ID has executable, debuginfo, section/NAME and source/PATH")
}

// file answers with a whole file, or the range of it that is asked for.
func (s *Server) file(w *exchange, r *http.Request, id buildid.ID, a artefact) error {
	if done, err := s.early(w, r, id, a); done || err != nil {
		return err
	}
	m, f, err := s.find(r, id, a)
	if err != nil {
		if m == nil && statusOf(err) == http.StatusNotFound {
			s.missing.note(w.who.name, id, "")
		}
		return err
	}
	o, err := s.open(r, id, a, f)
	if err != nil {
		return err
	}
	defer o.Close()
	s.used(w.who.name, m)
	s.describeFile(w, f)
	return serve(w, r, f.Object, o.Size(), f.LastModified(), o.Stream())
}

// describeFile sets the headers that say where a file came from.
func (s *Server) describeFile(w http.ResponseWriter, f *store.File) {
	if len(f.Origins) > 0 {
		describeOrigin(w.Header(), f.Origins[0])
	}
}

func describeOrigin(h http.Header, o store.Origin) {
	if o.Path != "" {
		h.Set("X-DEBUGINFOD-FILE", headerText(o.Path))
		if o.Archive != "" {
			h.Set("X-DEBUGINFOD-ARCHIVE", headerText(o.Archive))
		}
	}
}

// headerText makes a name harmless that somebody else chose.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// serve answers with content that never changes under its tag; "" for content that has none.
//
// Several files can have one time, such as that of the last change of what they were built from. So no client that asks by
// a time alone has a part of one file, or an old file, taken for another one.
func serve(w http.ResponseWriter, r *http.Request, tag string, size int64, modified time.Time, content io.ReadSeeker) error {
	// elfutils' client has a limit of its user's (debuginfod(8)).
	if most, err := strconv.ParseInt(r.Header.Get("X-DEBUGINFOD-MAXSIZE"), 10, 64); err == nil && most > 0 && size > most {
		return fail(http.StatusNotAcceptable, "the file has %d bytes, above the limit of %d that the request has", size, most)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-DEBUGINFOD-SIZE", strconv.FormatInt(size, 10))
	h.Set("Cache-Control", "max-age=60") // a better file may come
	if tag != "" {
		h.Set("ETag", `"`+tag+`"`)
	}
	r.Header.Del("If-Modified-Since")
	r.Header.Del("If-Unmodified-Since")
	if !strings.HasPrefix(r.Header.Get("If-Range"), `"`) && r.Header.Get("If-Range") != "" {
		r.Header.Del("Range")
	}
	if now := time.Now(); modified.After(now) { // RFC 9110, section 8.8.2.1
		modified = now
	}
	checked := checkedContent(content)
	http.ServeContent(w, r, "", modified, checked)
	return checked.err
}

// pieces is content in memory: Next returns up to n bytes of it, which nobody may change.
type pieces interface {
	Next(n int64) ([]byte, error)
}

// checkedReader remembers the error of the content, which http.ServeContent does not return.
type checkedReader struct {
	io.ReadSeeker
	pieces pieces // of the same content, nil where it has to be copied
	err    error
}

func checkedContent(content io.ReadSeeker) *checkedReader {
	c := &checkedReader{ReadSeeker: content}
	c.pieces, _ = content.(pieces)
	return c
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	return n, c.note(err)
}

// Next implements pieces, where there are some.
func (c *checkedReader) Next(n int64) ([]byte, error) {
	b, err := c.pieces.Next(n)
	return b, c.note(err)
}

func (c *checkedReader) note(err error) error {
	if err != nil && err != io.EOF {
		c.err = err
	}
	return err
}

// find returns a file of an identity: from the store, from this machine, from upstream.
func (s *Server) find(r *http.Request, id buildid.ID, a artefact) (*store.Manifest, *store.File, error) {
	ctx := r.Context()
	m, err := s.Store.Manifest(ctx, id)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return nil, nil, err
	}
	if m != nil && a.of(m) != nil {
		return m, a.of(m), nil
	}
	for _, get := range []func(*http.Request, buildid.ID, artefact) error{s.fromLocal, s.fromUpstream} {
		if err := get(r, id, a); err != nil {
			return nil, nil, err
		}
		m, err = s.Store.Manifest(ctx, id)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return nil, nil, err
		}
		if m != nil && a.of(m) != nil {
			return m, a.of(m), nil
		}
	}
	if m != nil {
		return m, nil, fail(http.StatusNotFound, "%v: no %s is known, only other files of this build ID", id, a)
	}
	return nil, nil, fail(http.StatusNotFound, "%v: no file with this build ID is known", id)
}

// fromLocal takes into the store what this machine has of an identity.
func (s *Server) fromLocal(r *http.Request, id buildid.ID, a artefact) error {
	if s.Local == nil || s.ReadOnly {
		return nil
	}
	c, err := s.takeLocal(r.Context(), id, a)
	if c == nil {
		return err
	}
	defer s.fetches.leave(c)
	_, err = c.wait(r.Context())
	return err
}

// takeLocal begins to take what this machine has of an identity, and says which files are on their way; nil where there is
// nothing to take. Each client waits for its own turn, unless somebody else takes the same already: what one client asks for
// a hundred times keeps nobody waiting.
func (s *Server) takeLocal(ctx context.Context, id buildid.ID, a artefact) (*flight, error) {
	key := "local " + id.String()
	if c := s.fetches.running(key); c != nil {
		return c, nil
	}
	if isPending, err := s.Local.Pending(ctx, id); !isPending {
		return nil, err
	}
	slot, err := s.unpacks.take(ctx, clientOf(ctx), 1, unpackTime)
	if err != nil {
		return nil, err
	}
	c, shared := s.fetches.join(ctx, key, func(ctx context.Context, c *flight) (any, error) {
		defer slot.release()
		added, err := s.Local.Publish(ctx, id, a == debugFile, c.announce)
		if added {
			s.metrics.add(1, "hallmark_files_added_total", "via", "scan")
		}
		return nil, err
	})
	if shared {
		slot.release()
	}
	return c, nil
}

// early answers with a file of this machine while it is taken into the store, and reports whether it did. Then the file
// is there.
func (s *Server) early(w *exchange, r *http.Request, id buildid.ID, a artefact) (done bool, err error) {
	if s.Local == nil || s.ReadOnly {
		return false, nil
	}
	if _, err := s.Store.Manifest(r.Context(), id); !errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	c, err := s.takeLocal(r.Context(), id, a)
	if c == nil {
		return false, err
	}
	defer s.fetches.leave(c)
	f, err := c.await(r.Context(), func(f *store.Arriving) bool { return a == executable && f.Executable || a == debugFile && f.Debug })
	if f == nil {
		return false, err
	}
	content, err := f.Open(r.Context())
	if err != nil {
		return false, nil // it has just come
	}
	defer content.Close()
	if _, err := content.ReadAt(make([]byte, 1), 0); err != nil {
		return false, nil // it did not come
	}
	describeOrigin(w.Header(), f.Origin)
	if err := serve(w, r, "", f.Size, f.Origin.LastModified(), content.Stream()); err != nil {
		return true, err
	}
	if err := w.FlushError(); err != nil {
		return true, ignoreGone(err)
	}
	// The client has it all, and may be gone: the store is to have it, too.
	ctx := context.WithoutCancel(r.Context())
	if _, err := c.wait(ctx); err != nil {
		s.Log.Warn("a file that was served is not in the store", "id", id.String(), "error", err)
		return true, nil
	}
	if m, err := s.Store.Manifest(ctx, id); err == nil {
		s.used(w.who.name, m)
	}
	return true, nil
}

// maxHops is how many servers may ask for each other, as elfutils' server has it.
const maxHops = 8

func newName() string { return "hallmark-" + rand.Text() }

// forwardedFor returns for whom upstream servers are asked, false where the question went
// through this server before, or through too many.
func (s *Server) forwardedFor(r *http.Request) (string, bool) {
	hops := strings.Join(r.Header.Values("X-Forwarded-For"), ", ")
	if strings.Contains(hops, s.name) || strings.Count(hops, ",")+1 > maxHops {
		return "", false
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	for _, hop := range []string{client, s.name} {
		if hops != "" {
			hops += ", "
		}
		hops += headerText(hop)
	}
	return hops, true
}

// fromUpstream asks other servers for a file, and takes it into the store. That none has it is
// no error.
func (s *Server) fromUpstream(r *http.Request, id buildid.ID, a artefact) error {
	return s.askUpstream(r, id, debuginfod.File(a), func(ctx context.Context, spool *store.Spool, o store.Origin) error {
		_, err := s.Store.Add(ctx, spool, store.Claim{ID: id, Origin: o})
		return err
	})
}

// askUpstream asks other servers for a file, and hands it to publish. That none has it is no error.
func (s *Server) askUpstream(r *http.Request, id buildid.ID, file debuginfod.File, publish publisher) error {
	if s.Upstream == nil || s.ReadOnly {
		return nil
	}
	forwarded, ok := s.forwardedFor(r)
	if !ok {
		s.metrics.add(1, "hallmark_upstream_requests_total", "result", "circle")
		return nil
	}
	flight := string(file) + " " + id.String()
	if debuginfod.IsFar(forwarded) {
		flight = "far " + flight
	}
	_, err := s.fetches.do(r.Context(), flight, func(ctx context.Context) error {
		return s.fetch(ctx, id, file, forwarded, publish)
	})
	switch {
	case errors.Is(err, debuginfod.ErrNotFound):
		s.metrics.add(1, "hallmark_upstream_requests_total", "result", "absent")
		return nil
	case err != nil:
		var failed *debuginfod.Error
		if errors.As(err, &failed) {
			s.metrics.add(1, "hallmark_upstream_requests_total", "result", "failed")
			s.countFailed(err)
			return &statusError{status: http.StatusServiceUnavailable, err: fmt.Errorf("%v is not here, and an upstream server failed", id), cause: err}
		}
		return err
	}
	s.metrics.add(1, "hallmark_upstream_requests_total", "result", "found")
	return nil
}

// countFailed counts which of the upstream servers failed for a request.
func (s *Server) countFailed(err error) {
	all := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	for _, err := range all {
		var failed *debuginfod.Error
		if errors.As(err, &failed) {
			s.metrics.add(1, "hallmark_upstream_failures_total", "server", debuginfod.Shown(failed.URL))
		}
	}
}

// publisher takes a file into the store.
type publisher func(context.Context, *store.Spool, store.Origin) error

// fetch downloads a file, whose build ID the client checks if it has one, and publishes it.
func (s *Server) fetch(ctx context.Context, id buildid.ID, file debuginfod.File, forwarded string, publish publisher) error {
	name, err := s.Upstream.FetchFor(ctx, id, file, forwarded)
	if err != nil {
		return err
	}
	f, err := regular.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else has taken it into the store meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	spool, err := s.Store.Spool(ctx, f)
	if err != nil {
		return err
	}
	defer spool.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	origin := store.Origin{Trust: store.Upstream, Via: "upstream", Who: s.Upstream.String(), Modified: info.ModTime()}
	if err := publish(ctx, spool, origin); err != nil {
		return err
	}
	s.metrics.add(1, "hallmark_files_added_total", "via", "upstream")
	return s.Upstream.Forget(id, file)
}

// section answers with the bytes of a section as they are in the file: the debug file, or the
// executable if that file has none of it.
func (s *Server) section(w *exchange, r *http.Request, id buildid.ID, name string) error {
	if name == "" {
		return fail(http.StatusBadRequest, "the name of a section is missing")
	}
	var missing error
	for _, a := range []artefact{debugFile, executable} {
		m, f, err := s.find(r, id, a)
		if err != nil {
			if statusOf(err) != http.StatusNotFound {
				return err
			}
			missing = err
			continue
		}
		done, err := s.sectionOf(w, r, id, a, f, name)
		if done || err != nil {
			s.used(w.who.name, m)
			return err
		}
		missing = fail(http.StatusNotFound, "%v: no section %q", id, name)
	}
	return missing
}

// sectionOf answers with a section of a file, or reports that the file does not have it.
func (s *Server) sectionOf(w *exchange, r *http.Request, id buildid.ID, a artefact, f *store.File, name string) (done bool, err error) {
	o, err := s.open(r, id, a, f)
	if err != nil {
		return false, err
	}
	defer o.Close()
	image, err := s.headersOf(r.Context(), w.client, o)
	if image == nil {
		return false, err
	}
	for i := range image.Sections {
		section := &image.Sections[i]
		if section.Name != name || section.Type == elffile.SHT_NOBITS {
			continue
		}
		size := o.Size()
		if section.Offset > uint64(size) || section.Size > uint64(size)-section.Offset {
			return false, fail(http.StatusNotFound, "section %q is outside of the file", name)
		}
		s.describeFile(w, f)
		stream := &part{content: o.Stream(), start: int64(section.Offset), size: int64(section.Size)}
		return true, serve(w, r, fmt.Sprintf("%s-%d", f.Object, i), int64(section.Size), f.LastModified(), stream)
	}
	return false, nil
}

// headersOf reads the headers of a file, which may have a million sections: some read them at a time.
func (s *Server) headersOf(ctx context.Context, client string, o *store.Object) (*elffile.Image, error) {
	slot, err := s.takeHeavy(ctx, client)
	if err != nil {
		return nil, err
	}
	defer slot.release()
	return elffile.Read(o, "the file")
}

// part is a part of a stream, as a stream of its own.
type part struct {
	content     *store.ObjectStream
	start, size int64
	off         int64
}

func (p *part) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += p.off
	case io.SeekEnd:
		offset += p.size
	}
	if offset < 0 {
		return p.off, errors.New("negative offset")
	}
	p.off = offset
	return offset, nil
}

func (p *part) Read(b []byte) (int, error) {
	piece, err := p.Next(int64(len(b)))
	return copy(b, piece), err
}

// Next implements pieces.
func (p *part) Next(n int64) ([]byte, error) {
	if p.off >= p.size {
		return nil, io.EOF
	}
	if _, err := p.content.Seek(p.start+p.off, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := p.content.Next(min(n, p.size-p.off))
	p.off += int64(len(b))
	return b, err
}

// flights share work between those who ask for the same at the same time.
type flights struct {
	mu    sync.Mutex
	calls map[string]*flight
}

type flight struct {
	key     string
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int
	value   any
	err     error

	mu    sync.Mutex
	early []*store.Arriving // files on their way, of which those may have a part who wait
	news  chan struct{}     // closed and replaced when another one comes
}

// announce wakes those who wait for a file that is on its way.
func (c *flight) announce(f *store.Arriving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early = append(c.early, f)
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
}

// await waits for a file that is on its way. It returns nil where the call has ended before.
func (c *flight) await(ctx context.Context, is func(*store.Arriving) bool) (*store.Arriving, error) {
	for {
		c.mu.Lock()
		if i := slices.IndexFunc(c.early, is); i >= 0 {
			defer c.mu.Unlock()
			return c.early[i], nil
		}
		if c.news == nil {
			c.news = make(chan struct{})
		}
		news := c.news
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, c.err
		case <-news:
		}
	}
}

// wait returns what came of a call.
func (c *flight) wait(ctx context.Context) (any, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return c.value, c.err
	}
}

// containedWork turns a panic into an error: it is on a goroutine of its own.
func containedWork(ctx context.Context, work func(context.Context) error) (err error) {
	if !defect.Escapes() {
		defer func() {
			if v := recover(); v != nil {
				err = defect.Caught(v)
			}
		}()
	}
	return work(ctx)
}

// do calls work, or waits for the call with the same key that is under way, which ends when
// nobody waits for it any more.
func (f *flights) do(ctx context.Context, key string, work func(context.Context) error) (shared bool, err error) {
	shared, _, err = f.share(ctx, key, func(ctx context.Context) (any, error) { return nil, work(ctx) })
	return shared, err
}

// share is do for work with a value, which all get who wait for it.
func (f *flights) share(ctx context.Context, key string, work func(context.Context) (any, error)) (shared bool, value any, err error) {
	c, shared := f.join(ctx, key, func(ctx context.Context, _ *flight) (any, error) { return work(ctx) })
	defer f.leave(c)
	value, err = c.wait(ctx)
	return shared, value, err
}

// running joins the call with a key that is under way; nil where there is none.
func (f *flights) running(key string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[key]
	if c != nil {
		c.waiting++
	}
	return c
}

// join begins a call, or joins the one with the same key, which it reports. The caller leaves it.
func (f *flights) join(ctx context.Context, key string, work func(context.Context, *flight) (any, error)) (c *flight, shared bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]*flight{}
	}
	c, shared = f.calls[key]
	if !shared {
		workCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c = &flight{key: key, done: make(chan struct{}), cancel: cancel}
		f.calls[key] = c
		go func() {
			defer func() {
				// A later request begins anew: some stay for long, such as slow readers of a file that came early.
				f.mu.Lock()
				f.drop(c)
				f.mu.Unlock()
				close(c.done)
			}()
			c.err = containedWork(workCtx, func(ctx context.Context) (err error) {
				c.value, err = work(ctx, c)
				return err
			})
		}()
	}
	c.waiting++
	return c, shared
}

// leave ends a call when nobody waits for it any more.
func (f *flights) leave(c *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.cancel()
		f.drop(c)
	}
}

// drop has nobody join a call any more. It is called under the lock.
func (f *flights) drop(c *flight) {
	if f.calls[c.key] == c {
		delete(f.calls, c.key)
	}
}
