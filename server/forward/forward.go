// Package forward sends messages to a server over HTTP, as OTLP has it: from a queue of bounded size, and
// again where the server asks for it or cannot be reached.
//
// The queue is in memory: its messages are lost when the program is killed.
package forward

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"hallmark/internal/defect"
	"hallmark/internal/plaintext"
)

// Path is where servers take OTLP profiles.
const Path = "/v1development/profiles"

// Bounds and times.
const (
	DefaultMaxQueue = 256 << 20 // bytes
	defaultSenders  = 4
	maxAnswer       = 4 << 20 // bytes of an answer, as OTLP recommends it
	requestTime     = time.Minute
	defaultGiveUp   = 5 * time.Minute // after which a message is dropped that cannot be sent
	firstPause      = time.Second
	longestPause    = 30 * time.Second
)

// ErrFull is the error of Add if the queue has no room, or if it takes nothing any more.
var ErrFull = errors.New("the queue of messages to pass on is full")

// Results of a message, for OnResult.
const (
	Sent    = "sent"
	Partial = "partial" // the server took a part
	Refused = "refused" // the server does not want it, and shall not be asked again
	Dropped = "dropped" // it could not be sent in time
)

// A Forwarder sends messages. Its fields must not change after its first use; its methods may be called by
// several goroutines at once.
type Forwarder struct {
	// URL is where messages are sent, as ParseURL returns it.
	URL string
	// Header goes with each request.
	Header http.Header
	// Client sends the requests; nil for one that follows no redirection.
	Client *http.Client
	// MaxQueue is how many bytes of messages wait or are being sent, DefaultMaxQueue when 0.
	MaxQueue int64
	// Senders is how many messages are sent at a time, 4 when 0.
	Senders int
	// GiveUp is after how long a message is dropped that cannot be sent, 5 minutes when 0.
	GiveUp time.Duration
	// Prepare returns what is sent of a message; nil for the message itself. If it fails, the message is sent as
	// it came.
	Prepare func(ctx context.Context, b []byte) ([]byte, error)
	// OnResult is called with the result of each message, and OnRetry before each further try; nil for no call.
	OnResult func(result string)
	OnRetry  func()
	Log      *slog.Logger

	// pause waits before another try; nil for the clock. Tests set it.
	pause func(ctx context.Context, d time.Duration) error

	mu     sync.Mutex
	queue  []queued
	size   int64            // of those in the queue and those that are being sent
	held   map[string]int64 // the same by client
	closed bool
	wake   chan struct{}
	once   sync.Once
}

// HopsHeader says by how many forwarders a message has come. MaxHops is how many it may have come by: servers
// that send to each other would do so for ever.
const (
	HopsHeader = "Hallmark-Hops"
	MaxHops    = 8
)

// queued is a message, of whom it is, and by how many forwarders it came.
type queued struct {
	message []byte
	client  string
	hops    int
}

// ParseURL returns where messages are sent for the URL of a server, to which Path is added unless it ends so.
func ParseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case !strings.Contains(text, "://"):
		return "", fmt.Errorf("%q is no URL of HTTP", text)
	case err != nil:
		return "", err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("%q is no URL of HTTP", text)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q has more than a path", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(u.Path, Path) {
		u.Path += Path
	}
	return u.String(), nil
}

func (f *Forwarder) init() {
	f.once.Do(func() {
		f.wake = make(chan struct{}, 1)
		if f.Client == nil {
			// A redirection could lead the headers elsewhere, and a POST becomes a GET.
			f.Client = &http.Client{Timeout: requestTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		}
		if f.MaxQueue == 0 {
			f.MaxQueue = DefaultMaxQueue
		}
		if f.Senders == 0 {
			f.Senders = defaultSenders
		}
		if f.GiveUp == 0 {
			f.GiveUp = defaultGiveUp
		}
		if f.Log == nil {
			f.Log = slog.New(slog.DiscardHandler)
		}
		if f.pause == nil {
			f.pause = wait
		}
	})
}

// Add puts a message of a client into the queue, which keeps it, and which came by so many forwarders. A client gets no
// more room than is free besides: so it cannot fill the queue for others. The error is ErrFull.
func (f *Forwarder) Add(b []byte, client string, hops int) error {
	f.init()
	f.mu.Lock()
	defer f.mu.Unlock()
	own, n := f.held[client], int64(len(b))
	free := f.MaxQueue - f.size
	if f.closed || f.size > 0 && n > free || own > 0 && own+n > free {
		return ErrFull
	}
	f.queue = append(f.queue, queued{b, client, hops})
	f.size += n
	if f.held == nil {
		f.held = map[string]int64{}
	}
	f.held[client] += n
	f.signal()
	return nil
}

// signal wakes a sender. It is called under the lock.
func (f *Forwarder) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Queued returns how many bytes wait or are being sent.
func (f *Forwarder) Queued() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// Run sends messages until it is closed and none waits any more, or until ctx is done.
func (f *Forwarder) Run(ctx context.Context) {
	f.init()
	var senders sync.WaitGroup
	for range f.Senders {
		senders.Go(func() {
			for {
				q, ok := f.next(ctx)
				if !ok {
					return
				}
				f.deliver(ctx, q)
			}
		})
	}
	senders.Wait()
}

// Close has Run end when all that waits was sent, or dropped. Nothing more is added.
func (f *Forwarder) Close() {
	f.init()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.signal()
}

// next returns a message to send, false at the end.
func (f *Forwarder) next(ctx context.Context) (queued, bool) {
	for {
		f.mu.Lock()
		if len(f.queue) > 0 && ctx.Err() == nil {
			q := f.queue[0]
			f.queue[0] = queued{}
			f.queue = f.queue[1:]
			f.signal() // there may be more, for another sender
			f.mu.Unlock()
			return q, true
		}
		isEnd := f.closed
		if isEnd {
			f.signal() // the others end, too
		}
		f.mu.Unlock()
		if isEnd {
			return queued{}, false
		}
		select {
		case <-ctx.Done():
			return queued{}, false
		case <-f.wake:
		}
	}
}

// deliver sends a message, and says what became of it.
func (f *Forwarder) deliver(ctx context.Context, q queued) {
	size := int64(len(q.message))
	result, err := f.contained(ctx, q)
	f.mu.Lock()
	f.size -= size
	if f.held[q.client] -= size; f.held[q.client] == 0 {
		delete(f.held, q.client)
	}
	f.mu.Unlock()
	if f.OnResult != nil {
		f.OnResult(result)
	}
	if err != nil {
		f.Log.Warn("a message was not passed on as a whole", "result", result, "bytes", size, "error", err)
	}
}

// contained sends a message. A defect in what prepares it costs that message alone.
func (f *Forwarder) contained(ctx context.Context, q queued) (result string, err error) {
	if !defect.Escapes() {
		defer func() {
			if v := recover(); v != nil {
				result, err = Dropped, defect.Caught(v)
			}
		}()
	}
	out := q.message
	if f.Prepare != nil {
		if prepared, err := f.Prepare(ctx, out); err != nil {
			f.Log.Warn("a message is passed on as it came", "error", err)
		} else {
			out = prepared
		}
	}
	return f.send(ctx, compressed(out), q.hops+1)
}

// compressed returns a body in gzip.
func compressed(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is one
	z.Write(b)                                        // neither can fail, in memory
	z.Close()
	return out.Bytes()
}

// A retryError is a failure after which a message is sent again, not before some time.
type retryError struct {
	err   error
	after time.Duration // 0 where nobody says
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// send sends a body until a server took or refused it, or until there is no time.
func (f *Forwarder) send(ctx context.Context, body []byte, hops int) (string, error) {
	end := time.Now().Add(f.GiveUp)
	pause := firstPause
	for {
		result, err := f.post(ctx, body, hops)
		var again *retryError
		if !errors.As(err, &again) {
			return result, err
		}
		d := max(again.after, pause/2+rand.N(pause/2)) // not all messages at the same time
		if ctx.Err() != nil || time.Now().Add(d).After(end) {
			return Dropped, err
		}
		if f.pause(ctx, d) != nil {
			return Dropped, err
		}
		pause = min(2*pause, longestPause)
		if f.OnRetry != nil {
			f.OnRetry()
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// post sends a body once (OpenTelemetry protocol specification, "OTLP/HTTP Response").
func (f *Forwarder) post(ctx context.Context, body []byte, hops int) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, bytes.NewReader(body))
	if err != nil {
		return Refused, err
	}
	for name, values := range f.Header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "gzip")
	r.Header.Set("User-Agent", "hallmark")
	r.Header.Set(HopsHeader, strconv.Itoa(hops))
	resp, err := f.Client.Do(r)
	if err != nil {
		return Dropped, &retryError{err: err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusBadGateway,
		resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		return Dropped, &retryError{answerError(resp, answer), retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	case resp.StatusCode/100 != 2:
		return Refused, answerError(resp, answer)
	case len(answer) > maxAnswer:
		return Refused, fmt.Errorf("%s: the answer has more than %d bytes", resp.Status, maxAnswer)
	case err != nil: // it may have been taken: twice is better than not at all
		return Dropped, &retryError{err: err}
	}
	if rejected, text := partial(answer); rejected > 0 {
		return Partial, fmt.Errorf("the server rejected %d profiles: %s", rejected, text)
	} else if text != "" {
		f.Log.Info("the server has a remark", "remark", text)
	}
	return Sent, nil
}

// answerError returns an answer as an error, with the message in it (google.rpc.Status).
func answerError(resp *http.Response, answer []byte) error {
	text := ""
	eachBytes(answer, func(number protowire.Number, b []byte) {
		if number == 2 {
			text = string(b)
		}
	})
	if text == "" {
		return errors.New(resp.Status)
	}
	return fmt.Errorf("%s: %s", resp.Status, shown(text))
}

// shown returns a text of another server as a line of bounded length.
func shown(text string) string {
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	return plaintext.Line(strings.ToValidUTF8(text, "?"))
}

// partial returns what an answer says was rejected (ExportProfilesServiceResponse).
func partial(answer []byte) (rejected int64, text string) {
	eachBytes(answer, func(number protowire.Number, b []byte) {
		if number != 1 {
			return
		}
		for rest := b; len(rest) > 0; {
			number, kind, n := protowire.ConsumeTag(rest)
			if n < 0 {
				return
			}
			rest = rest[n:]
			if number == 1 && kind == protowire.VarintType {
				v, _ := protowire.ConsumeVarint(rest)
				rejected = int64(v)
			}
			if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
				return
			}
			rest = rest[n:]
		}
		eachBytes(b, func(number protowire.Number, b []byte) {
			if number == 2 {
				text = shown(string(b))
			}
		})
	})
	return rejected, text
}

// eachBytes calls do for each field of a message that has a length, until the message is damaged.
func eachBytes(message []byte, do func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		if kind == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(message)
			do(number, b)
		}
		message = message[n:]
	}
}

// longestAfter is how long a server can have a message wait.
const longestAfter = 2 * time.Minute

// retryAfter returns what a header says: seconds, or a date. 0 is nothing.
func retryAfter(text string, now time.Time) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), longestAfter)
}
