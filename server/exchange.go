package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Rates of clients, and times. A client that moves nothing for paceTime is cut, and so is one that stays below its rate
// for longer. One that reaches fairRate is never taken for slow.
const (
	strangerRate = 1 << 10 // bytes a second of a client that is not known
	knownRate    = 100     // of one with a token or a certificate
	fairRate     = 64 << 10
	paceTime     = 30 * time.Second
	slowTime     = 5 * time.Second       // behind fairRate, after which a request makes room for others
	pauseTime    = 50 * time.Millisecond // of waiting for a client, after which a slot is given back
	watchTime    = 5 * time.Second       // between looks at what the other side of a connection has received
)

// Bytes of an answer that are written at once. A slow client gets small parts, so that its rate is seen.
const (
	smallPart = 2 << 10
	largePart = 256 << 10
	framePart = 16 << 10 // of HTTP/2, where nobody sees what the client has received
)

// An exchange is a request under way: whose it is, what it holds, and its answer.
type exchange struct {
	http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	who     caller
	client  string // whose share of the pools it takes
	status  int
	sent    int64
	broke   bool  // the answer has begun and ends before its last byte
	part    int   // bytes of the next part of the answer
	slot    *slot // for work that costs much; nil for none

	// received returns how many bytes the other side of the connection has received, false where that is not known.
	received func() (int64, bool)

	mu       sync.Mutex
	pace     pace
	deadline [2]time.Time // that are set, of reading and writing
	watch    *time.Timer
	seen     int64 // bytes that the other side had at the last look
	over     bool  // the handler has returned: the answer belongs to others
	isCut    error // why the server ended it
	// direction is in which bytes moved last, and cutIn is that of the end: an answer may still say why nothing is read.
	direction, cutIn int
}

// newExchange returns an exchange with a client that is not known yet.
func newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	e := &exchange{ResponseWriter: w, r: r, control: http.NewResponseController(w), part: smallPart}
	e.pace = pace{rate: strangerRate, left: paceTime}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &arriving{r.Body, e}
	}
	return e
}

// asker returns for whom indexes are asked.
func (e *exchange) asker() asker { return asker{e.who.name, e.client, e.slot} }

// asker is for whom the server looks something up: the name of a token, a client, and the slot that is given back while it
// waits.
type asker struct {
	name, client string
	slot         *slot
}

// pace is how fast a client takes and sends. Only the time counts in which the server waits for it.
type pace struct {
	rate  int64         // bytes a second that it has to reach
	left  time.Duration // that it may still be behind its rate
	debt  time.Duration // that it is behind fairRate
	since time.Time     // when the server began to wait; zero while it does not
}

func timeOf(n, rate int64) time.Duration { return time.Duration(n) * time.Second / time.Duration(rate) }

// moved counts bytes that took some time.
func (p *pace) moved(n int64, took time.Duration) {
	p.left = min(paceTime, p.left-took+timeOf(n, p.rate))
	p.debt = max(0, p.debt+took-timeOf(n, fairRate))
}

// Directions of bytes.
const (
	reading = iota
	writing
)

// known takes over who the client is.
func (e *exchange) known(rate int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pace.rate = rate
}

// behind returns how long a request is behind fairRate while the server waits for its client; 0 while it does not.
func (e *exchange) behind(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pace.since.IsZero() || e.over || e.isCut != nil {
		return 0
	}
	return e.pace.debt + now.Sub(e.pace.since)
}

// await begins to wait for a client, to which n bytes go or from which some come.
func (e *exchange) await(direction int, n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.pace.since, e.direction, e.seen = now, direction, -1
	e.until(direction, now.Add(e.pace.left+timeOf(n, e.pace.rate)))
	if direction == writing && e.received != nil {
		if e.watch == nil {
			e.watch = time.AfterFunc(watchTime, e.look)
		} else {
			e.watch.Reset(watchTime)
		}
	}
}

// until sets a deadline, unless the one that is set is as good. It is called under the lock.
func (e *exchange) until(direction int, at time.Time) {
	d := &e.deadline[direction]
	switch {
	case e.isCut != nil && direction == e.cutIn:
		at = time.Unix(1, 0)
	case e.isCut != nil:
		at = time.Now().Add(slowTime)
	case e.pace.left > slowTime && at.Sub(*d).Abs() < time.Second:
		return
	}
	*d = at
	if direction == reading {
		_ = e.control.SetReadDeadline(at) // where it is not supported, there is no connection
	} else {
		_ = e.control.SetWriteDeadline(at)
	}
}

// look gives a client time for what its side of the connection has received since the last look. The kernel takes much of an
// answer at once, and has room for more only when a third of that has gone: a slow client would seem to be silent.
func (e *exchange) look() {
	n, ok := e.received()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pace.since.IsZero() || e.over || !ok {
		return
	}
	now := time.Now()
	if e.seen >= 0 {
		e.pace.moved(n-e.seen, now.Sub(e.pace.since))
		e.pace.since = now
		e.until(writing, now.Add(max(0, e.pace.left)))
	}
	e.seen = n
	e.watch.Reset(watchTime)
}

// moved ends the wait for a client, in which n bytes moved.
func (e *exchange) moved(n int64) {
	received := int64(-1)
	if e.watch != nil && e.seenSome() {
		if all, ok := e.received(); ok {
			received = all
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	took := time.Since(e.pace.since)
	if e.watch != nil {
		e.watch.Stop()
	}
	if received >= 0 && e.seen >= 0 {
		n = received - e.seen
	}
	e.pace.moved(n, took)
	e.pace.since = time.Time{}
	e.part = smallPart
	if took < pauseTime {
		e.part = largePart
		if e.r.ProtoMajor > 1 {
			e.part = framePart
		}
	}
}

// seenSome reports whether look has looked since the server began to wait.
func (e *exchange) seenSome() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen >= 0
}

// errGaveWay ends a request whose client is slow, when another one wants its place.
var errGaveWay = fail(http.StatusServiceUnavailable, "the client is slow, and others wait")

// errSlow ends a request whose client is below its rate.
var errSlow = fail(http.StatusRequestTimeout, "the client sends or takes less than it has to")

// cut ends a request.
func (e *exchange) cut(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.isCut != nil {
		return
	}
	e.isCut, e.cutIn = why, e.direction
	e.until(e.direction, time.Time{})
}

// end is called before the handler returns: then the answer belongs to others, who still have to send its last bytes.
func (e *exchange) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.isCut == nil || e.cutIn == reading {
		_ = e.control.SetWriteDeadline(time.Now().Add(paceTime))
	}
	if e.watch != nil {
		e.watch.Stop()
	}
}

// why returns the reason of a failure to read or to write.
func (e *exchange) why(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil || err == io.EOF:
	case e.isCut != nil:
		return e.isCut
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.isCut, e.cutIn = errSlow, e.direction
		return errSlow
	}
	return err
}

// ended returns why the server ended a request; nil where it did not.
func (e *exchange) ended() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isCut
}

// WriteHeader implements http.ResponseWriter.
func (e *exchange) WriteHeader(status int) {
	if e.status == 0 {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It writes in parts, each of which the client has to take in time.
func (e *exchange) Write(b []byte) (n int, err error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	for len(b) > 0 && err == nil {
		part, wrote := b[:min(len(b), e.part)], 0
		wrote, err = e.waiting(writing, len(part), func() (int, error) { return e.ResponseWriter.Write(part) })
		n, b = n+wrote, b[wrote:]
	}
	e.sent += int64(n)
	return n, err
}

// buffers are for what goes from a file to a client.
var buffers = sync.Pool{New: func() any { return new([largePart]byte) }}

// ReadFrom implements io.ReaderFrom, for io.Copy: with few large parts a fast client costs less. Bytes in memory are not
// copied before.
func (e *exchange) ReadFrom(r io.Reader) (n int64, err error) {
	if l, ok := r.(*io.LimitedReader); ok { // of http.ServeContent
		if c, ok := l.R.(*checkedReader); ok && c.pieces != nil {
			return e.writePieces(c, l.N)
		}
	}
	b := buffers.Get().(*[largePart]byte)
	defer buffers.Put(b)
	for {
		got, err := r.Read(b[:])
		if got > 0 {
			wrote, err := e.Write(b[:got])
			if n += int64(wrote); err != nil {
				return n, err
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// writePieces writes the next bytes of some content, size of them.
func (e *exchange) writePieces(from pieces, size int64) (n int64, err error) {
	for n < size {
		b, err := from.Next(size - n)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		wrote, err := e.Write(b)
		if n += int64(wrote); err != nil {
			return n, err
		}
	}
	return n, nil
}

// FlushError sends what is written. http.ResponseController calls it.
func (e *exchange) FlushError() error {
	_, err := e.waiting(writing, smallPart, func() (int, error) { return 0, e.control.Flush() })
	return err
}

// waiting calls what waits for the client, and gives the slot of the request back if that takes long.
func (e *exchange) waiting(direction, n int, move func() (int, error)) (int, error) {
	e.await(direction, int64(n))
	back := e.leave()
	n, err := move()
	e.moved(int64(n))
	if gone := back(); err == nil {
		err = gone
	}
	return n, e.why(err)
}

// leave gives the slot back after a while. What it returns ends that.
func (e *exchange) leave() (back func() error) {
	s := e.slot
	if s == nil {
		return func() error { return nil }
	}
	left := make(chan struct{})
	t := time.AfterFunc(pauseTime, func() { s.pause(); close(left) })
	return func() error {
		if t.Stop() {
			return nil
		}
		<-left
		return s.resume(e.r.Context())
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// arriving is the body of a request, which has to come in time.
type arriving struct {
	io.ReadCloser
	e *exchange
}

func (a *arriving) Read(p []byte) (n int, err error) {
	n, err = a.e.waiting(reading, 0, func() (int, error) { return a.ReadCloser.Read(p) })
	if err != nil { // else the end of that time would be taken for that of the connection
		a.e.mu.Lock()
		defer a.e.mu.Unlock()
		a.e.deadline[reading] = time.Time{}
		_ = a.e.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// takeHeavy takes a slot for work that costs much. It waits a little.
func (s *Server) takeHeavy(ctx context.Context, client string) (*slot, error) {
	return s.heavy.take(ctx, client, 1, heavyTime)
}

const heavyTime = 10 * time.Second // in which a request waits for a slot
