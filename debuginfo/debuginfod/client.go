// Package debuginfod asks debuginfod servers for the files of a build ID.
//
// The protocol is that of elfutils (debuginfod(8), "WEBAPI"): GET
// URL/buildid/ID/debuginfo, …/executable and …/source/PATH. So are the environment variables and
// the cache directory (debuginfod-client-config(7)), which gdb, perf and everybody
// else who uses elfutils' client shares with this one.
//
// A server is not trusted: a file that it sends is used only if it has the build ID that
// was asked for, and is bounded in size and time. A source file has no identity: it is the
// word of the server. A server that cannot be reached
// is left alone for a while, so that it costs its timeout once and not once for
// each file.
package debuginfod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
)

// ErrNotFound says that no server has the file, or that none had it lately.
var ErrNotFound = errors.New("no debuginfod server has the file")

// Error is a request that failed. Whether the server has the file is not known.
type Error struct {
	URL string
	Err error
}

func (e *Error) Error() string { return Shown(e.URL) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// File is which of the files of a build ID is meant.
type File string

// The files of a build ID.
const (
	DebugInfo  File = "debuginfo"
	Executable File = "executable"
)

// Source returns the source file that debug information names by an absolute path. A path that leads up
// stays below the root: it is a part of a URL.
func Source(name string) File { return File(sources + path.Clean("/"+name)) }

const sources = "source"

func (f File) isSource() bool { return strings.HasPrefix(string(f), sources+"/") }

// path returns what comes after the build ID in the URL of a file.
func (f File) path() string { return (&url.URL{Path: string(f)}).EscapedPath() }

// inCache returns the name of a file in the cache. Paths of sources are longer than names may be.
func (f File) inCache() string {
	if !f.isSource() {
		return string(f)
	}
	sum := sha256.Sum256([]byte(f))
	return sources + "-" + hex.EncodeToString(sum[:])
}

// Client fetches files. Its fields must not change after its first use; its
// methods may be called by several goroutines at once, and those that ask for the
// same file share one download. The zero value asks nobody.
type Client struct {
	// URLs are the servers, without the /buildid part.
	URLs []string
	// Unsigned are servers that the environment names behind ima:enforcing: those whose files have to
	// have signatures. Nobody asks them, as nobody checks these.
	Unsigned []string
	// Dir is the cache directory. Without it nothing can be fetched, nor if another user
	// can change what is in it or where its path leads.
	Dir string
	// Timeout is how long a server may be silent, 15 s when 0. In this time, or in 15 s if
	// that is longer, it has to send 100 KiB.
	Timeout time.Duration
	// MaxTime bounds a download, unless it is 0, and MaxSize its size in bytes, unpacked: 4 GiB
	// when 0. A file is at most 100 times as large as what was received for it, or 16 MiB.
	// A download receives at most twice as many bytes as the file has, and 256 KiB more.
	MaxTime time.Duration
	MaxSize int64
	// MissTime is how long the Client remembers that no server has a file, in memory. When 0, the cache
	// directory does, as long as its control file says, and others who use it know, too. That takes a
	// directory for each build ID, so it is not for those who ask on behalf of others.
	MissTime time.Duration
	// Retries is how often a server is asked again after an error that may pass. It
	// is not for answers that say that the server does not have the file.
	Retries int
	// SameHost has no redirect followed to another host than the server's, but for those that RedirectHosts names: who asks
	// on behalf of others would ask for them what is in its reach alone. Redirects of sources go nowhere else in any case.
	SameHost      bool
	RedirectHosts []string
	// Header goes with each request, and not to another server that one redirects to.
	Header http.Header
	// Progress is called with how far a download is; nil for no call. Size is 0 while it is
	// not known. It is called from the goroutines of several downloads.
	Progress func(id buildid.ID, file File, bytes, size int64)
	// Warn is called with the first failure of each server; nil for no call. It is called
	// from the goroutines of several downloads.
	Warn func(*Error)

	once    sync.Once
	http    *http.Client
	servers []*server
	slots   chan struct{} // one for each download at a time

	mu     sync.Mutex
	calls  map[key]*call
	misses map[missKey]time.Time // what no server had then: whoever asks chooses these, so they take no disk
}

type key struct {
	id   buildid.ID
	file File
	far  bool // see IsFar
}

// nearHops is how many commas X-Forwarded-For may have in a question of which it is remembered that no server has the file.
const nearHops = 4

// IsFar reports whether servers may answer that they lack a file because the question came through too many. Whoever
// asks can claim that it did. So such an answer is for those alone who ask like this.
func IsFar(forwarded string) bool { return strings.Count(forwarded, ",") > nearHops }

// call is a download that several may wait for.
type call struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int // under Client.mu
	err     error
}

// maxDownloads at a time: a server has other clients.
const maxDownloads = 8

func (c *Client) init() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	c.http = newHTTP(c.Timeout)
	c.http.CheckRedirect = c.redirect
	for _, url := range c.URLs {
		c.servers = append(c.servers, &server{url: url})
	}
	c.slots = make(chan struct{}, maxDownloads)
	c.calls = map[key]*call{}
	c.misses = map[missKey]time.Time{}
	c.clean()
}

// Check returns why nothing can be fetched, nil if something can: another user can change the
// cache, or it is nowhere.
func (c *Client) Check() error {
	if c.Dir == "" {
		return errors.New("no cache directory")
	}
	return cachedir.Check(c.Dir)
}

// String returns the URLs of the servers, as Shown has them.
func (c *Client) String() string {
	var shown []string
	for _, u := range c.URLs {
		shown = append(shown, Shown(u))
	}
	return strings.Join(shown, " ")
}

// Shown returns the URL of a server without the name and the password of a user, which others need not see.
func Shown(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		u.User = nil
		return u.String()
	}
	return raw[strings.LastIndex(raw, "@")+1:]
}

// A State is how a server is.
type State struct {
	URL     string // as Shown has it
	Resting bool   // it failed not long ago, and is not asked for a while
}

// States returns how the servers are now, in the order of URLs.
func (c *Client) States() (states []State) {
	c.once.Do(c.init)
	for _, s := range c.servers {
		states = append(states, State{Shown(s.url), s.down(time.Now()) != nil})
	}
	return states
}

// Fetch returns the path in the cache of a file of the build ID, which must be of
// kind GNU. The error is ErrNotFound, that of ctx, or wraps one or several *Error.
func (c *Client) Fetch(ctx context.Context, id buildid.ID, file File) (path string, err error) {
	return c.FetchFor(ctx, id, file, "")
}

// FetchFor is Fetch on behalf of others: forwarded goes to the servers as X-Forwarded-For, by
// which servers that ask each other notice a circle. Of several that wait for one download,
// the first one's goes. That no server has the file is not remembered where it came through many.
func (c *Client) FetchFor(ctx context.Context, id buildid.ID, file File, forwarded string) (path string, err error) {
	if id.Kind() != buildid.GNU || len(c.URLs) == 0 || c.Dir == "" {
		return "", ErrNotFound
	}
	c.once.Do(c.init)
	k := key{id, file, IsFar(forwarded)}
	path = c.path(k)
	if found, err := c.cached(k); found || err != nil {
		return path, err
	}
	call := c.join(k, forwarded)
	defer c.leave(k, call)
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-call.done:
		return path, call.err
	}
}

// forwardedKey is where the context of a download has what goes as X-Forwarded-For.
type forwardedKey struct{}

// join returns the call for a file, and starts it if there is none.
func (c *Client) join(k key, forwarded string) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[k]
	if call == nil {
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), forwardedKey{}, forwarded))
		call = newCall(cancel)
		c.calls[k] = call
		go func() {
			defer close(call.done)
			call.err = c.download(ctx, k)
		}()
	}
	call.waiting++
	return call
}

func newCall(cancel context.CancelFunc) *call {
	return &call{done: make(chan struct{}), cancel: cancel}
}

// leave ends a call when nobody waits for it any more.
func (c *Client) leave(k key, call *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.waiting--; call.waiting > 0 {
		return
	}
	call.cancel()
	if c.calls[k] == call {
		delete(c.calls, k)
	}
}

// download asks all servers and puts the file into the cache.
func (c *Client) download(ctx context.Context, k key) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Another process, or a call that just ended, may have been faster.
	if found, err := c.cached(k); found || err != nil {
		return err
	}
	var errs []error
	for _, s := range c.servers {
		err := c.downloadFrom(ctx, s, k)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // one of them may have it: ask again later
	}
	return c.remember(k)
}

// downloadFrom asks a server, again when the error may pass.
func (c *Client) downloadFrom(ctx context.Context, s *server, k key) error {
	if err := s.down(time.Now()); err != nil {
		return &Error{s.url, err}
	}
	for try := 0; ; try++ {
		err := c.get(ctx, s.url+"/buildid/"+k.id.String()+"/"+k.file.path(), k)
		var lasting *lastingError
		switch {
		case err == nil, errors.Is(err, ErrNotFound):
			s.answered()
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &lasting):
			return c.failure(s, err)
		case try >= c.Retries, timedOut(err):
			// Clients choose the paths of sources, so a failure for one does not show that the server is down.
			if !k.file.isSource() || isUnreachable(err) {
				s.failed(time.Now(), err)
			}
			return c.failure(s, err)
		}
		if err := pause(ctx, backoff(try)); err != nil {
			return err
		}
	}
}

// failure returns the error of a server, after warning of it if it is the first.
func (c *Client) failure(s *server, err error) error {
	failed := &Error{s.url, err}
	s.told.Do(func() {
		if c.Warn != nil {
			c.Warn(failed)
		}
	})
	return failed
}

// store puts a download into the cache, if it is the right file.
func (c *Client) store(temp string, k key) error {
	if k.file.isSource() {
		return os.Rename(temp, c.path(k))
	}
	info, err := buildid.ReadFile(temp)
	if err != nil {
		return &lastingError{fmt.Errorf("what it sent cannot be read: %w", stripped(err))}
	}
	if info.ID != k.id {
		return &lastingError{fmt.Errorf("what it sent is another file: %v", info.ID)}
	}
	return os.Rename(temp, c.path(k))
}

// stripped takes the name of a temporary file out of an error.
func stripped(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
