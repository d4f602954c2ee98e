// Package server is a symbol server over HTTP: one place that stores files by identity, serves
// them to all clients of debuginfod, takes uploads, and turns offsets into functions and lines.
//
// Any number of servers can work over one store. All that a server keeps besides it is a cache.
package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/defect"
	"hallmark/internal/plaintext"
	"hallmark/profile/otlp"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/forward"
	"hallmark/server/store"
	"hallmark/server/symbols"
)

// Config says how a Server works. The zero value of every field but Store is sensible.
type Config struct {
	Store *store.Store
	// Upstream are servers that are asked for what the store does not have; nil for none. Its
	// Dir is a directory that is this server's alone.
	Upstream *debuginfod.Client
	// Local finds files on this machine, to be taken into the store when they are asked for;
	// nil for none.
	Local Local
	// Symbols answers for addresses; nil for a server that does not.
	Symbols *symbols.Indexes
	// Tokens is the file that says who may do what. Without it everybody may do all that needs
	// no administrator, and only requests that name this machine are answered unless Open.
	Tokens string
	// Open answers requests by any name of this machine without tokens.
	Open bool
	// Admits returns why the client of a connection with TLS is refused, which it was not when it was made; nil for
	// a server that asks nobody.
	Admits func(*tls.ConnectionState) error
	// CORS lets pages of all sites that a browser shows ask for files and their names.
	CORS bool
	// ReadOnly refuses uploads.
	ReadOnly bool
	// CollectEvery is how often one of the servers of the store removes what need not be kept; 0 for
	// never. Retention says which identities are, all of them when zero.
	CollectEvery time.Duration
	// CheckEvery is how often one of the servers of the store reads all of it, slowly, and looks for what is damaged; 0
	// for never.
	CheckEvery time.Duration
	Retention  store.Retention
	// Requests bounds how many are answered at a time, 512 when 0, and Heavy those that take
	// much memory or time, 8 when 0. Connections bounds how many there are: eight times as many as requests when 0,
	// and in any case half of the files that this process may open.
	Requests, Heavy, Connections int
	// TrustedProxies are networks of proxies whose word counts in X-Forwarded-For: they say for whom they ask.
	TrustedProxies []netip.Prefix
	// Limits bound what one client may take; none when zero.
	Limits Limits
	// Forward sends OTLP profiles on, with names; nil for a server that takes none. Its Prepare,
	// OnResult and OnRetry are the server's.
	Forward *forward.Forwarder
	// Opened is how many profiles are kept open for those who look at them, 16 when 0, and OpenedMemory how many
	// bytes these take, by an estimate, 1 GiB when 0. A profile that takes more is not shown.
	Opened       int
	OpenedMemory int64
	// Log gets a line for each request; nil for none.
	Log *slog.Logger
}

// Local finds files on this machine that the store may lack.
type Local interface {
	// Publish takes what it has of an identity into the store, debug files first where debugFirst, and reports
	// whether it had something that the store did not. It calls early with what can be served while it comes; nil
	// for no call.
	Publish(ctx context.Context, id buildid.ID, debugFirst bool, early func(*store.Arriving)) (bool, error)
	// Pending reports whether Publish has to read files.
	Pending(ctx context.Context, id buildid.ID) (bool, error)
	// Source opens the source file of a path for an identity; false where it has none. It calls begin before it
	// reads much, and what that returns afterwards.
	Source(ctx context.Context, m *store.Manifest, path string, begin func() (end func(), err error)) (io.ReadCloser, store.Origin, bool, error)
	// Names calls yield with the names of files that it has, as /metadata has them, those of an identity or, where
	// that is zero, all, until yield returns false. It returns whether it knows all of its files yet.
	Names(id buildid.ID, yield func(kind string, id buildid.ID, file, archive string) bool) (complete bool)
	// Counts returns how many packages and identities it knows.
	Counts() (packages, identities int64)
}

// A Server answers requests.
type Server struct {
	Config
	guard   guard
	metrics *metrics
	fetches flights
	usage   usage
	meter   meter

	profiles  profiles
	kept      kept
	missing   askings
	asked     askings // that are there
	readiness readiness
	started   time.Time
	stored    atomic.Int64 // bytes of the store when this server collected garbage last
	opened    opened
	viewer    viewer

	gates   gates
	conns   conns
	heavy   pool
	asks    pool  // questions to upstream servers whose answers are in memory
	unpacks pool  // of files and packages of this machine that are read
	files   *gate // of files that are on their way
	refused refusals
	name    string // of this server among those that ask each other
	mux     *http.ServeMux
	handler http.Handler
}

// New returns a Server.
func New(c Config) *Server {
	if c.Requests == 0 {
		c.Requests = 512
	}
	if c.Heavy == 0 {
		c.Heavy = 8
	}
	c.Connections = mostConns(cmp.Or(c.Connections, 8*c.Requests))
	c.Requests = min(c.Requests, max(4, c.Connections/2)) // those that are silent find room, too
	if c.Opened == 0 {
		c.Opened = defaultOpened
	}
	if c.OpenedMemory == 0 {
		c.OpenedMemory = defaultOpening
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{Config: c, metrics: newMetrics(), name: newName(), viewer: newViewer()}
	s.share()
	s.guard = guard{file: c.Tokens, log: c.Log.Error}
	s.meter = meter{Limits: c.Limits, now: s.now}
	s.Store.OnChange = func(m *store.Manifest) {
		if len(m.Files) > 0 {
			s.missing.found(m.ID)
		}
	}
	s.Store.OnBroken, s.Store.ReadOnly = s.noteBroken, s.ReadOnly
	s.Store.OnDamage, s.Store.OnStray = s.noteDamage, s.noteStray
	s.metrics.gauges["hallmark_damaged_lists"] = s.Store.DamagedLists
	s.metrics.gauges["hallmark_broken_objects"] = func() int64 { return int64(len(s.Store.Broken())) }
	s.metrics.gauges["hallmark_identities"] = s.Store.Catalog().Len
	s.metrics.gauges["hallmark_store_bytes"] = s.stored.Load
	s.metrics.describeProcess()
	if c.Local != nil {
		s.metrics.gauges["hallmark_scanned_packages"] = func() int64 { n, _ := c.Local.Counts(); return n }
		s.metrics.gauges["hallmark_scanned_identities"] = func() int64 { _, n := c.Local.Counts(); return n }
	}
	if u := c.Upstream; u != nil && u.Warn == nil {
		u.Warn = func(e *debuginfod.Error) {
			s.Log.Warn("an upstream server failed for the first time", "server", debuginfod.Shown(e.URL), "error", e.Err)
		}
	}
	if c.Symbols != nil {
		c.Symbols.OnDamage = func() { s.metrics.add(1, "hallmark_damaged_indexes_total") }
		c.Symbols.Made = func(result string) { s.metrics.add(1, "hallmark_indexes_total", "result", result) }
	}
	s.profiles.waiting = make(chan struct{}, waitingSenders)
	s.started = time.Now()
	s.metrics.gauges["hallmark_profiles_open"] = s.opened.count
	if f := c.Forward; f != nil {
		f.Prepare, f.Log = s.prepare, c.Log
		f.OnResult = func(result string) { s.metrics.add(1, "hallmark_forwarded_total", "result", result) }
		f.OnRetry = func() { s.metrics.add(1, "hallmark_forward_retries_total") }
		s.metrics.gauges["hallmark_forward_queue_bytes"] = f.Queued
	}
	s.routes()
	return s
}

// share divides what the server has between clients.
func (s *Server) share() {
	busy := fail(http.StatusTooManyRequests, "the server is busy")
	s.gates = newGates(s.Requests)
	s.conns = conns{most: s.Connections, key: s.clientAt, ended: func() { s.refused.count(s, "connections", "") }}
	s.heavy = pool{size: int64(s.Heavy), busy: busy, eager: true}
	s.unpacks = pool{size: int64(max(1, s.Heavy/2)), busy: fail(http.StatusTooManyRequests, "the server reads as many packages as it can"), eager: true}
	s.asks = pool{size: int64(s.Heavy), busy: fail(http.StatusTooManyRequests, "the server asks upstream servers as much as it can"), eager: true}
	s.files = newGate(filesOfHeavy*s.Heavy, fail(http.StatusTooManyRequests, "the server has as many files on their way as it takes"))
	crowded := fail(http.StatusServiceUnavailable, "the server has too many profiles at once")
	s.profiles.bodies = pool{size: maxBodies, busy: crowded}
	s.profiles.decoded = pool{size: otlp.DefaultMaxMemory, busy: crowded}
	for kind, g := range map[string]*gate{"known": s.gates.known, "stranger": s.gates.strangers, "watcher": s.gates.watch} {
		s.metrics.gauges[withLabels("hallmark_requests_under_way", "of", kind)] = g.inUse
	}
	s.metrics.gauges["hallmark_heavy_under_way"] = s.heavy.inUse
	for of, p := range s.shared() {
		s.metrics.gauges[withLabels("hallmark_pool_size", "of", of)] = func() int64 { return p.size }
		s.metrics.gauges[withLabels("hallmark_pool_in_use", "of", of)] = p.inUse
		s.metrics.gauges[withLabels("hallmark_pool_clients", "of", of)] = func() int64 { return int64(p.state(of).Clients) }
	}
	s.metrics.gauges["hallmark_connections"] = s.conns.count
}

// shared returns what clients share, by the names that health has for it.
func (s *Server) shared() map[string]*pool {
	return map[string]*pool{
		"requests": &s.gates.known.pool, "strangers": &s.gates.strangers.pool, "watchers": &s.gates.watch.pool, "heavy": &s.heavy, "asks": &s.asks, "unpacks": &s.unpacks,
		"files": &s.files.pool, "bodies": &s.profiles.bodies, "profiles": &s.profiles.decoded,
		"questions": &s.viewer.turns.places, "downloads": &s.viewer.turns.downloads, "answers": &s.viewer.turns.unsent,
	}
}

// pools returns the state of what clients share.
func (s *Server) pools() (all []api.Pool) {
	shared := s.shared()
	for _, of := range slices.Sorted(maps.Keys(shared)) {
		all = append(all, shared[of].state(of))
	}
	return all
}

// unpackTime is how long a request waits for its turn to read a package of this machine.
const unpackTime = time.Minute

// filesOfHeavy is how many files can be on their way for each request that may cost much: they take room on the disk.
const filesOfHeavy = 4

// Load reads what the store has for searches by name. Where no server has looked at all manifests not long ago, it does so.
func (s *Server) Load(ctx context.Context) error {
	c := s.Store.Catalog()
	if err := c.Refresh(ctx); err != nil {
		return err
	}
	for range 2 { // the second one behind a first one
		if !c.PassDue() {
			break
		}
		if err := c.Pass(ctx); err != nil {
			return err
		}
	}
	return s.Store.LoadBroken(ctx)
}

// Times of looks at what other servers of the store have changed.
const (
	followTime = 4 * time.Second
	soonTime   = time.Second // where a change is announced
	brokenTime = time.Minute
)

// Follow loads what the store has, and then what other servers change, until ctx is done.
func (s *Server) Follow(ctx context.Context) {
	c := s.Store.Catalog()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		s.again(ctx, "cannot look at all files of the store", func(ctx context.Context) (time.Duration, error) {
			if c.PassDue() {
				return 0, c.Pass(ctx)
			}
			return followTime, nil
		})
	})
	all.Go(func() {
		s.again(ctx, "cannot read which objects are broken", func(ctx context.Context) (time.Duration, error) {
			return brokenTime, s.Store.LoadBroken(ctx)
		})
	})
	s.again(ctx, "cannot read what other servers changed", func(ctx context.Context) (time.Duration, error) {
		if err := c.Refresh(ctx); err != nil {
			return 0, err
		}
		pause := followTime
		if c.Unsettled() {
			pause = soonTime
		}
		return pause, c.Compact(ctx)
	})
}

// again does something until ctx is done, with the pause that it returns, or one of its own after an error. It logs the
// first error of several.
func (s *Server) again(ctx context.Context, what string, do func(context.Context) (time.Duration, error)) {
	failed := false
	for ctx.Err() == nil {
		var pause time.Duration
		err := containedWork(ctx, func(ctx context.Context) (err error) {
			pause, err = do(ctx)
			return err
		})
		if err != nil && ctx.Err() == nil && !failed {
			s.Log.Error(what+"; it is tried again", "error", err)
		}
		if failed = err != nil; failed {
			pause = retryTime
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// retryTime is when a store is asked again that failed.
const retryTime = 10 * time.Second

func (s *Server) routes() {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", s.home)
	m.HandleFunc("GET /app/", s.kind("page", public, s.pages))
	m.HandleFunc("GET /login", s.kind("login", public, s.login))
	m.HandleFunc("POST /login", s.kind("login", public, s.enter))
	m.HandleFunc("POST /logout", s.kind("login", public, s.leave))
	m.HandleFunc("GET /v1/search", s.kind("search", Read, s.search))
	m.HandleFunc("GET /v1/functions", s.kind("functions", Read, s.findFunctions))
	m.HandleFunc("GET /v1/missing", s.kind("missing", Read, s.listMissing))
	m.HandleFunc("GET /v1/health", s.kind("health", Read, s.health))
	m.HandleFunc("GET /metadata", s.kind("metadata", Read, s.metadata))
	m.HandleFunc("GET /v1/identities/{id}", s.kind("identity", Read, s.identity))
	m.HandleFunc("POST /v1/identities/{id}/pin", s.kind("pin", Admin, s.pin))
	m.HandleFunc("POST /v1/plan", s.kind("plan", "", s.uploading(s.plan)))
	m.HandleFunc("PUT /v1/files/{sha256}", s.kind("upload", "", s.uploading(s.whole)))
	m.HandleFunc("PUT /v1/uploads/{sha256}/{offset}", s.kind("upload", "", s.uploading(s.part)))
	m.HandleFunc("POST /v1/uploads/{sha256}", s.kind("upload", "", s.uploading(s.commit)))
	m.HandleFunc("PUT /v1/sources/{id}", s.kind("upload", "", s.uploading(s.putSource)))
	m.HandleFunc("POST /v1/symbolize", s.kind("symbolize", Symbolize, s.symbolize))
	m.HandleFunc("POST /v1/rewrite", s.kind("rewrite", Symbolize, s.rewrite))
	m.HandleFunc("POST /v1/profiles", s.kind("profile", "", s.uploading(s.keep)))
	m.HandleFunc("GET /v1/profiles", s.kind("profiles", Read, s.listProfiles))
	m.HandleFunc("GET /v1/profiles/{id}", s.kind("profile", Read, s.getProfile))
	m.HandleFunc("DELETE /v1/profiles/{id}", s.kind("profile", Admin, s.removeProfile))
	m.HandleFunc("GET /profiles/{id}", s.kind("view", Symbolize, s.profilePage))
	m.HandleFunc("GET /profiles/{id}/{rest...}", s.kind("view", Symbolize, s.viewProfile))
	m.HandleFunc("POST "+forward.Path, s.kind("otlp", "", s.forwardProfiles))
	m.HandleFunc("POST "+exportPath, s.kind("otlp", "", s.exportProfiles))
	s.mux = m
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(s.kind("foreign", public, func(*exchange, *http.Request, caller) error {
		return fail(http.StatusForbidden, "a browser sent this from a page of another site")
	}))
	s.handler = p.Handler(http.HandlerFunc(s.route))
}

// route answers what is asked for while others wait, and paths that are not to be cleaned.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if s.CORS && (strings.HasPrefix(r.URL.Path, "/buildid/") || r.URL.Path == "/metadata") {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD")
			h.Set("Access-Control-Allow-Headers", "Authorization, Range")
			h.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", "ETag, X-DEBUGINFOD-SIZE, X-DEBUGINFOD-FILE, X-DEBUGINFOD-ARCHIVE")
	}
	switch {
	case r.URL.Path == "/healthz":
		fmt.Fprintln(w, "alive")
	case r.URL.Path == "/readyz":
		s.readyz(w, r)
	case r.URL.Path == "/metrics":
		s.kind("metrics", "", s.writeMetrics)(w, r)
	case strings.HasPrefix(r.URL.Path, "/buildid/"):
		s.kind("buildid", Read, s.buildID)(w, r)
	default:
		s.known(w, r)
	}
}

// known answers as the mux does, which has text alone for what it does not know: people get a page, and others JSON.
func (s *Server) known(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	s.kind("unknown", public, func(w *exchange, r *http.Request, _ caller) error {
		no := &outcome{header: w.Header()}
		if r.URL.Path != exportPath {
			h.ServeHTTP(no, r)
		}
		switch no.status {
		case http.StatusNotFound:
			return fail(no.status, "this server has no such path")
		case http.StatusMethodNotAllowed:
			return fail(no.status, "%.20q is not for this path, but %s", r.Method, w.Header().Get("Allow"))
		}
		s.mux.ServeHTTP(w, r)
		return nil
	})(w, r)
}

// outcome is the status and the header of an answer.
type outcome struct {
	header http.Header
	status int
}

func (o *outcome) Header() http.Header         { return o.header }
func (o *outcome) Write(b []byte) (int, error) { return len(b), nil }
func (o *outcome) WriteHeader(status int)      { o.status = status }

// bodyTime is how long a client may take, behind its answer, to send the rest of a request that
// nobody wants.
const bodyTime = 5 * time.Second

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff") // strangers choose names and contents
	defer s.conns.begin(r.RemoteAddr)()
	// The deadline of the request before on this connection is still there.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(paceTime))
	s.handler.ServeHTTP(w, r)
	// The connection would wait for the rest of the body as long as the client likes.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // where it is not supported, there is no connection
}

// readyz reports whether the store answers, and whether those that watch the server find room. That others are refused is
// no reason not to be ready: who makes it refuse one server would have a balancer take away all of them.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	e := newExchange(w, r)
	e.client = s.clientAt(r.RemoteAddr)
	text := "the server has no room for those that watch it"
	if err := s.gates.watch.enter(e); err == nil {
		defer e.end()
		defer s.gates.watch.leave(e)
		if s.storeAnswers(r.Context()) {
			fmt.Fprintln(e, "ready")
			return
		}
		text = "the store does not answer"
	} else {
		s.refused.count(s, s.reasonOf(err), e.client)
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, text)
}

// writeMetrics answers with all numbers.
func (s *Server) writeMetrics(w *exchange, _ *http.Request, _ caller) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var b bytes.Buffer
	s.metrics.write(&b) // it is locked meanwhile, and the client may be slow
	_, err := w.Write(b.Bytes())
	return err
}

// readiness is whether the store answered a moment ago: anybody may ask the server that, as often as they like.
type readiness struct {
	asking sync.Mutex

	mu    sync.Mutex
	known bool
	until time.Time
	ready bool
}

const (
	readyTime   = time.Second // for which an answer of the store counts
	readyWithin = 5 * time.Second
)

// get returns what is known, false where the store has to be asked.
func (r *readiness) get() (ready, fresh, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, time.Now().Before(r.until), r.known
}

// storeAnswers asks the store once in a second, however many ask the server. While it is asked, the answer of before counts.
func (s *Server) storeAnswers(ctx context.Context) bool {
	r := &s.readiness
	ready, fresh, known := r.get()
	switch {
	case fresh:
		return ready
	case r.asking.TryLock():
	case known:
		return ready
	default:
		r.asking.Lock()
	}
	defer r.asking.Unlock()
	if ready, fresh, _ = r.get(); fresh {
		return ready
	}
	// Others have the answer who are not gone when this one is.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	// A bucket that is gone looks like an object that is gone to all requests but GET.
	_, _, err := blob.Read(ctx, s.Store.Blobs, "ready", blob.MaxSwap)
	ready = err == nil || errors.Is(err, blob.ErrNotExist)
	if !ready {
		s.metrics.add(1, "hallmark_store_failures_total")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready, r.known, r.until = ready, true, time.Now().Add(readyTime)
	return ready
}

// A statusError is an answer that is no success.
type statusError struct {
	status int
	err    error
	cause  error // for the log alone, nil for none
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func fail(status int, format string, args ...any) error {
	return &statusError{status: status, err: fmt.Errorf(format, args...)}
}

// retryAfter is how many seconds a client is asked to wait.
const retryAfter = "5"

// publicText returns what a client is shown of an error.
func publicText(err error) string {
	var known *statusError
	switch {
	case errors.Is(err, errCache):
		return errCache.Error()
	case errors.Is(err, errCacheFull):
		return errCacheFull.Error()
	case statusOf(err) == http.StatusInternalServerError && !errors.As(err, &known):
		return "the server failed" // what failed is in its log
	}
	return err.Error()
}

// Errors of what the server keeps besides its store. The log has the directory, which is nothing for clients.
var (
	errCache     = errors.New("the server cannot write to its cache directory")
	errCacheFull = errors.New("no space is left in the cache directory of the server")
)

// cacheError returns the error of a request as one of the cache, where it is one: a disk that became read-only is no defect
// of the server. Everything else stays as it is.
func (s *Server) cacheError(err error) error {
	if errors.Is(err, store.ErrScratchFull) {
		return fmt.Errorf("%w: %w", errCacheFull, err)
	}
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return err
	}
	because := errCache
	switch {
	case errors.Is(failed, syscall.ENOSPC), errors.Is(failed, syscall.EDQUOT):
		because = errCacheFull
	case !errors.Is(failed, syscall.EROFS) && !errors.Is(failed, fs.ErrPermission):
		return err
	}
	dirs := []string{s.Store.Scratch}
	if s.Symbols != nil {
		dirs = append(dirs, s.Symbols.Dir)
	}
	if s.Upstream != nil {
		dirs = append(dirs, s.Upstream.Dir)
	}
	for _, dir := range dirs {
		if dir != "" && (failed.Path == dir || strings.HasPrefix(failed.Path, dir+"/")) {
			return fmt.Errorf("%w: %w", because, err)
		}
	}
	return err
}

// statusOf returns the status that an error is answered with.
func statusOf(err error) int {
	var known *statusError
	var mismatch *store.MismatchError
	var format *store.FormatError
	var tooMany *store.TooManyError
	var tooLarge *http.MaxBytesError
	var limit *limitError
	var broken *store.BrokenError
	var damaged *store.DamagedError
	switch {
	case errors.Is(err, errCacheFull), errors.Is(err, store.ErrScratchFull):
		return http.StatusInsufficientStorage
	case errors.As(err, &known):
		return known.status
	case errors.As(err, &broken), errors.As(err, &damaged):
		return http.StatusNotFound
	case errors.As(err, &limit):
		return http.StatusTooManyRequests
	case errors.As(err, &mismatch), errors.As(err, &tooMany):
		return http.StatusConflict
	case errors.As(err, &format):
		return http.StatusUnprocessableEntity
	case errors.Is(err, store.ErrTooLarge), errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, blob.ErrFull):
		return http.StatusInsufficientStorage
	case errors.Is(err, blob.ErrUnavailable), errors.Is(err, errCache):
		return http.StatusServiceUnavailable
	case errors.Is(err, blob.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, context.Canceled):
		return 499 // the client is gone
	}
	return http.StatusInternalServerError
}

// public is for what has nothing of the store in it, and takes no token.
const public Role = "public"

// answer is a handler whose error becomes the answer.
type answer func(*exchange, *http.Request, caller) error

// kind returns a handler for requests of one kind, which need a role; "" for one that is looked
// at by the answer itself.
func (s *Server) kind(kind string, role Role, f answer) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		start := time.Now()
		w := newExchange(out, r)
		defer w.end()
		leave, err := s.admit(w, r, kind, role)
		if leave == nil {
			leave = s.turnAway()
		}
		defer leave()
		if err != nil && statusOf(err) == http.StatusUnauthorized && strings.HasPrefix(r.URL.Path, "/profiles/") && isNavigation(r) {
			s.welcome(w, r)
			return
		}
		if err == nil {
			err = s.contained(f, w, r.WithContext(context.WithValue(r.Context(), clientKey{}, w.client)), w.who)
		}
		if err = cmp.Or(w.ended(), s.cacheError(err)); err != nil {
			if w.status != 0 {
				s.breakOff(w, r, kind, start, err)
			}
			s.refuse(w, r, err)
		}
		if w.sent > 0 && r.ProtoMajor > 1 { // else the answer would wait for the client when nobody counts it
			_ = w.FlushError()
		}
		s.note(w, r, kind, start, err)
	}
}

// clientKey is that of the client of a request in its context.
type clientKey struct{}

// clientOf returns whose share of the pools work takes; "" for work of the server itself.
func clientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// turnAway is for a request that is refused and that no pool counts. One of too many gets no answer: those who do not read
// theirs keep them here for a while.
func (s *Server) turnAway() (done func()) {
	if s.refused.now.Add(1) > int64(s.Requests) {
		s.refused.now.Add(-1)
		panic(http.ErrAbortHandler)
	}
	return func() { s.refused.now.Add(-1) }
}

// breakOff cuts the connection of an answer that has begun and that the server cannot end, so that nobody takes a part for
// the whole.
func (s *Server) breakOff(w *exchange, r *http.Request, kind string, start time.Time, err error) {
	s.refused.count(s, s.reasonOf(err), w.client)
	if errors.Is(err, blob.ErrUnavailable) {
		s.metrics.add(1, "hallmark_store_failures_total")
	}
	w.broke = true
	s.note(w, r, kind, start, err)
	panic(http.ErrAbortHandler)
}

// note counts and logs a request that is over.
func (s *Server) note(w *exchange, r *http.Request, kind string, start time.Time, err error) {
	status := max(w.status, 200)
	s.metrics.add(1, "hallmark_requests_total", "kind", kind, "status", strconv.Itoa(status))
	s.metrics.add(w.sent, "hallmark_sent_bytes_total")
	s.metrics.observe(time.Since(start), "hallmark_request_seconds", kind)
	level := slog.LevelInfo
	broke := w.broke && s.reasonOf(err) == "" && r.Context().Err() == nil && !errors.Is(err, context.Canceled) // no fault of the client
	if broke {
		s.metrics.add(1, "hallmark_broken_answers_total", "kind", kind)
	}
	if broke || status >= 500 && s.reasonOf(err) == "" { // refusals have a line a minute
		level = slog.LevelError
	}
	if !s.Log.Enabled(r.Context(), level) {
		return
	}
	about := []slog.Attr{slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", status),
		slog.Int64("bytes", w.sent), slog.Duration("time", time.Since(start)), slog.String("from", r.RemoteAddr), slog.String("who", w.who.name)}
	if w.broke {
		about = append(about, slog.Bool("broken_off", true))
	}
	if err != nil {
		about = append(about, slog.Any("error", err))
	}
	if known := (*statusError)(nil); errors.As(err, &known) && known.cause != nil {
		about = append(about, slog.String("cause", plaintext.Line(known.cause.Error())))
	}
	s.Log.LogAttrs(r.Context(), level, "request", about...)
}

// admit lets a request in if its client may make it, and returns what ends it: nil for one that no pool counts.
func (s *Server) admit(w *exchange, r *http.Request, kind string, role Role) (leave func(), err error) {
	if err := s.reaches(w, r); err != nil {
		return nil, err
	}
	who, unknown := s.guard.identify(r)
	w.who, w.client = who, s.clientOf(r, who)
	if r.ProtoMajor == 1 {
		w.received = s.conns.received(r.RemoteAddr)
	}
	if who.name != "" || isCertified(r) {
		w.known(knownRate)
	}
	if err := s.limited(w); err != nil {
		return nil, err
	}
	if leave, err = s.gates.enter(w, unknown == nil, kind == "health" || kind == "metrics"); err != nil {
		return nil, err
	}
	return leave, mayAsk(who, unknown, role)
}

// reaches returns why a request is not for this server.
func (s *Server) reaches(w http.ResponseWriter, r *http.Request) error {
	if s.Admits != nil && r.TLS != nil {
		if err := s.Admits(r.TLS); err != nil {
			w.Header().Set("Connection", "close") // of HTTP/2, too
			s.Log.Warn("a connection ends", "from", r.RemoteAddr, "error", err)
			return fail(http.StatusUnauthorized, "the certificate of this connection is taken no longer")
		}
	}
	if s.Tokens == "" && !s.Open && !isLoopback(r.Host) {
		return fail(http.StatusForbidden, "this server answers requests to localhost alone; a page in a browser may have sent this one to %q", r.Host)
	}
	return nil
}

// mayAsk returns an error if a client may not make a request. unknown is why nobody knows it.
func mayAsk(who caller, unknown error, role Role) error {
	switch {
	case role == public:
		return nil
	case unknown != nil:
		return &statusError{status: http.StatusUnauthorized, err: unknown}
	case role != "" && !who.may(role):
		return who.lacks(role)
	}
	return nil
}

// contained answers, and turns a panic into an error.
func (s *Server) contained(f answer, w *exchange, r *http.Request, who caller) (err error) {
	if !defect.Escapes() {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v)
			}
			err = defect.Caught(v)
			s.metrics.add(1, "hallmark_panics_total")
			s.Log.Error("a defect of the server", "error", err, "stack", string(debug.Stack()))
		}()
	}
	return f(w, r, who)
}

// refuse answers with an error.
func (s *Server) refuse(w *exchange, r *http.Request, err error) {
	s.refused.count(s, s.reasonOf(err), w.client)
	status := statusOf(err)
	if errors.Is(err, blob.ErrUnavailable) {
		s.metrics.add(1, "hallmark_store_failures_total")
	}
	h := w.Header()
	if w.ended() != nil && r.ProtoMajor == 1 {
		h.Set("Connection", "close") // else the answer would wait for the rest of the request
	}
	for _, name := range []string{"ETag", "Content-Range", "Accept-Ranges", "Cache-Control"} {
		h.Del(name)
	}
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", retryAfter)
		var limit *limitError
		if errors.As(err, &limit) {
			h.Set("Retry-After", strconv.FormatInt(seconds(limit.after), 10))
			s.metrics.add(1, "hallmark_limited_total", "limit", limit.limit)
		}
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="hallmark"`)
	}
	text := publicText(err)
	if r.URL.Path == exportPath {
		grpcError(h, status, text)
		w.WriteHeader(http.StatusOK)
		return
	}
	if r.URL.Path == forward.Path {
		b := writeStatus(w, r, text)
		w.WriteHeader(status)
		_, _ = w.Write(b) // a client that is gone learns nothing
		return
	}
	if isNavigation(r) {
		page(w, status)
		_ = errorPage.Execute(w, map[string]string{"Title": http.StatusText(status), "Text": plaintext.Line(text)})
		return
	}
	if strings.HasPrefix(r.URL.Path, "/profiles/") { // which pages show to people
		http.Error(w, plaintext.Line(text), status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(plaintext.JSON(w)).Encode(api.Error{Error: text, Status: status})
	}
}

// smallAnswer is up to how many bytes an answer in memory counts for nothing.
const smallAnswer = 64 << 10

// errUnread refuses an answer that would wait in memory for its client.
var errUnread = fail(http.StatusTooManyRequests, "the server has as many answers that nobody has read yet as it takes")

// writeJSON answers with a value. It gives the slot of the request back before it writes. A large answer is counted until its
// client has taken it.
func (s *Server) writeJSON(w *exchange, v any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(plaintext.JSON(&b)).Encode(v); err != nil {
		return err
	}
	w.slot.release()
	if b.Len() > smallAnswer {
		done, err := s.viewer.turns.Unsent(w, int64(b.Len()))
		if err != nil {
			return errUnread
		}
		defer done()
	}
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(b.Bytes())
	return ignoreGone(err)
}

// ignoreGone returns nil for the failure to send to a client, which nobody can learn of.
func ignoreGone(error) error { return nil }

// readJSON reads a request of at most most bytes.
func readJSON(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	return decodeJSON(http.MaxBytesReader(w, r.Body, most), v)
}

func decodeJSON(r io.Reader, v any) error {
	if err := json.NewDecoder(r).Decode(v); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return fail(http.StatusBadRequest, "the request is no JSON of the expected form: %v", err)
	}
	return nil
}

// home answers a browser with the page, and others with a text.
func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.kind("page", public, s.pages)(w, r)
		return
	}
	s.kind("overview", Read, s.overview)(w, r)
}

// pages serves the page for people, and what it loads. It has nothing in it but the server's own text.
func (s *Server) pages(w *exchange, r *http.Request, _ caller) error {
	s.viewer.site.ServeHTTP(w, r)
	return nil
}

// overview says in a few lines what this is.
func (s *Server) overview(w *exchange, _ *http.Request, _ caller) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "Hallmark symbol server: %s.\n\nDEBUGINFOD_URLS of debuggers and profilers may name this server.\nPush files with: hallmark push --server URL FILE...\nSee /metrics, /metadata?key=glob&value=*NAME*, /v1/identities/ID.\n", plaintext.Plural(s.Store.Catalog().Len(), "identity", "identities"))
	return nil
}

// parseID returns the identity in a path.
func parseID(text string) (buildid.ID, error) {
	id, err := buildid.Parse(text)
	if err != nil {
		return id, fail(http.StatusBadRequest, "%.100q is no identity: %v", text, cmp.Or(errors.Unwrap(err), err))
	}
	return id, nil
}

// identity answers what is known of an identity.
func (s *Server) identity(w *exchange, r *http.Request, who caller) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	m, err := s.Store.Manifest(r.Context(), id)
	if err != nil {
		return err
	}
	out := describe(m)
	if out.Asked = s.asked.of(id); out.Asked != nil && !who.may(Admin) {
		out.Asked.By = nil
	}
	if r.URL.Query().Get("sections") != "" {
		if out.Sections, err = s.sections(r, w.client, m); err != nil {
			return err
		}
	}
	return s.writeJSON(w, out)
}

func (s *Server) pin(w *exchange, r *http.Request, _ caller) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.Store.Pin(r.Context(), id, r.URL.Query().Get("off") == ""); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// describe returns a manifest as clients see it.
func describe(m *store.Manifest) api.Identity {
	out := api.Identity{ID: m.ID, Symbols: string(m.Symbols()), Pinned: m.Pinned, Used: m.Used}
	disputed := map[string]bool{}
	for _, f := range m.Disputed() {
		disputed[f.Object] = true
		out.Disputed = true
	}
	exe, dbg := m.Executable(), m.DebugInfo()
	for i := range m.Files {
		f := &m.Files[i]
		a := api.File{SHA256: f.Object, Size: f.Size, Executable: f.Executable, Debug: f.Debug, Symbols: string(f.Symbols), Disputed: disputed[f.Object]}
		if f == exe {
			a.Serves = append(a.Serves, "executable")
		}
		if f == dbg {
			a.Serves = append(a.Serves, "debuginfo")
		}
		for _, o := range f.Origins {
			a.Origins = append(a.Origins, api.Origin{Trust: string(o.Trust), Via: o.Via, Who: o.Who, Path: o.Path, Archive: o.Archive, Package: o.Package, Time: o.Time})
		}
		out.Files = append(out.Files, a)
	}
	return out
}

// metadata answers searches by name, as elfutils' server does.
func (s *Server) metadata(w *exchange, r *http.Request, _ caller) error {
	q := r.URL.Query()
	key, value := q.Get("key"), q.Get("value")
	if key != "file" && key != "glob" && key != "buildid" || value == "" {
		return fail(http.StatusBadRequest, "wants key=file, key=glob or key=buildid, and a value")
	}
	if key == "glob" && len(value) > maxPattern {
		return fail(http.StatusBadRequest, "the pattern has more than %d bytes", maxPattern)
	}
	inStore := value
	if key == "glob" {
		inStore = globOf(value)
	}
	var err error
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	found, complete := searchNames(r.Context(), s.Store.Catalog(), key, inStore)
	if found, complete, err = s.named(w, r, key, value, found, complete); err != nil {
		return err
	}
	if found == nil {
		found = []entry{}
	}
	return s.writeJSON(w, struct {
		Results  []entry `json:"results"`
		Complete bool    `json:"complete"`
	}{found, complete})
}
