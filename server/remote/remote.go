// Package remote has a debuginfo.Library ask a symbol server: a machine that has no files and no indexes
// knows the functions and lines of those that the server has.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/reason"
	"hallmark/server/api"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/symbol"
)

// Server answers for the files that a symbol server has. It is a debuginfo.Remote. Its fields must not
// change after its first use.
type Server struct {
	Client *client.Client
	// Warn is called once if the server cannot be asked, after which nobody asks it, and for each
	// file whose answer cannot be used. Nil means no call.
	Warn func(error)
	// Waiting is called each time that the server is asked again for an index it is making; nil for
	// no call.
	Waiting func(buildid.ID)
	// Uncompared is as that of a [debuginfo.Finder], with the URL of the server; nil for no call.
	Uncompared func(id buildid.ID, from string)
	// Patience is how long the server is waited for in sum, 15 minutes when 0. After that nobody asks it: one that answers
	// slowly, each time in time, would hold up a profile of many files for ever.
	Patience time.Duration

	mu    sync.Mutex
	down  bool // it could not be asked
	asked int  // requests under way
	begun time.Time
	spent time.Duration // with requests under way, before begun
}

const defaultPatience = 15 * time.Minute

var errPatience = errors.New("its answers took too long in sum")

// begin begins a request. It ends with what it returns, or when there is no patience any more.
func (s *Server) begin(ctx context.Context) (context.Context, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == 0 {
		s.begun = time.Now()
	}
	s.asked++
	left := cmp.Or(s.Patience, defaultPatience) - s.spent - time.Since(s.begun)
	ctx, cancel := context.WithTimeoutCause(ctx, left, errPatience)
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asked--; s.asked == 0 {
			s.spent += time.Since(s.begun)
		}
	}
}

var _ debuginfo.Remote = (*Server)(nil)

// An index is waited for in steps that are shorter than the client waits for an answer to begin.
const (
	waitStep  = 20 * time.Second
	waitSteps = 15
)

// Open returns what the server knows of a file, nil if it has none of that identity and content. Offsets
// of the kernel and of its modules do not count from the start of a file: the server is not asked for them.
func (s *Server) Open(ctx context.Context, q debuginfo.Query) debuginfo.Symbols {
	if s.isDown() || q.Kernel || q.Module != "" {
		return nil
	}
	f := &file{server: s, ctx: ctx, id: q.ID}
	for range waitSteps {
		a, err := s.ask(ctx, columns.File{ID: q.ID.String()})
		switch {
		case err != nil:
			return nil
		case a.Files[0].Why == "" && a.Files[0].Code == "" && (!q.Content.IsZero() || len(q.Mapped) > 0):
			return s.debugFile(f, &q, a.Files[0].Segments)
		case a.Files[0].Why == "":
			if code := a.Files[0].Code; !q.Content.IsZero() && code != q.Content.String() {
				s.warn(fmt.Errorf("%s: its file of %v has other code than the one that is asked for", s.Client.URL, q.ID))
				return nil
			}
			f.code = a.Files[0].Code
			return f
		case a.Files[0].Why != whyPending:
			return nil
		}
		if s.Waiting != nil {
			s.Waiting(q.ID)
		}
	}
	s.warn(fmt.Errorf("%s: it is still preparing the symbols of %v", s.Client.URL, q.ID))
	return nil
}

// debugFile returns what answers from a debug file, whose segments with code these are, for a program that the
// server does not have; nil where nobody is believed to know that it is the program's.
func (s *Server) debugFile(f *file, q *debuginfo.Query, segments []symbol.Segment) debuginfo.Symbols {
	f.places = symbol.NewPlaces(segments, q.Mapped)
	switch {
	case len(segments) == 0:
		s.warn(fmt.Errorf("%s: it has a debug file of %v alone, and nobody who may speak for the program sent it: push the program, too", s.Client.URL, q.ID))
		return nil
	case q.Rival:
		s.warn(fmt.Errorf("%s: it has a debug file of %v alone, and files of different content have this build ID: push the program, too", s.Client.URL, q.ID))
		return nil
	case !f.places.Known():
		s.warn(fmt.Errorf("%s: it has a debug file of %v alone, and nothing shows where in memory the code of the program was: push the program, too", s.Client.URL, q.ID))
	case s.Uncompared != nil:
		s.Uncompared(q.ID, s.Client.URL)
	}
	return f
}

// whyPending is the answer for a file whose index is being made (symbols.Pending).
const whyPending = "pending"

// ask asks for the symbols of one file. After a failure of the server nobody asks it again.
func (s *Server) ask(ctx context.Context, f columns.File) (*columns.Answer, error) {
	within, end := s.begin(ctx)
	defer end()
	a, err := s.Client.Symbolize(within, &columns.Question{Files: []columns.File{f}, WaitMS: uint64(waitStep.Milliseconds())})
	if err != nil && ctx.Err() == nil {
		if context.Cause(within) == errPatience {
			err = fmt.Errorf("%s: %w", s.Client.URL, errPatience)
		}
		s.mu.Lock()
		isFirst := !s.down
		s.down = true
		s.mu.Unlock()
		if isFirst {
			s.warn(fmt.Errorf("%w: going on with this machine alone", err))
		}
	}
	return a, err
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *Server) warn(err error) {
	if s.Warn != nil {
		s.Warn(err)
	}
}

// file is a file that a server has.
type file struct {
	server *Server
	ctx    context.Context
	id     buildid.ID
	code   string         // content of the code that answered first
	places *symbol.Places // of a debug file alone; nil for others

	mu    sync.Mutex
	known map[question]symbol.Result // single answers: text names the same few addresses again and again
}

// question is an address in a file.
type question struct {
	isVirtual bool
	at        uint64
}

// maxKnown bounds the single answers that are kept of a file.
const maxKnown = 1 << 14

var errOther = errors.New("the file of the server is another one by now")

// lookup asks for addresses in any order.
func (f *file) lookup(isVirtual bool, addresses []uint64) []symbol.Result {
	results := make([]symbol.Result, len(addresses))
	order := make([]int, len(addresses))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case addresses[a] < addresses[b]:
			return -1
		case addresses[a] > addresses[b]:
			return 1
		}
		return 0
	})
	for part := range slices.Chunk(order, mostAtOnce) {
		c := columns.File{ID: f.id.String(), Virtual: isVirtual, Addresses: make([]uint64, len(part))}
		for i, n := range part {
			c.Addresses[i] = addresses[n]
		}
		answers, why := f.ask(c)
		for i, n := range part {
			if answers == nil {
				results[n] = symbol.Miss(why)
				continue
			}
			results[n] = answers[i]
		}
	}
	return results
}

// mostAtOnce is how many addresses are in a request: the server bounds the calls of all of them.
const mostAtOnce = api.MaxAddresses / 8

// ask asks for ascending addresses. Without an answer it returns why.
func (f *file) ask(c columns.File) ([]symbol.Result, reason.Reason) {
	a, err := f.server.ask(f.ctx, c)
	switch {
	case err != nil && f.ctx.Err() != nil:
		return nil, reason.NotLookedUp
	case err != nil:
		return nil, reason.ServerFailed
	case a.Files[0].Why != "":
		return nil, reason.NoFile // it was removed since
	case a.Files[0].Code != f.code:
		f.server.warn(fmt.Errorf("%s: %v: %w", f.server.Client.URL, f.id, errOther))
		return nil, reason.FileChanged
	}
	return a.Results(0), reason.None
}

// one answers for one address.
func (f *file) one(q question) symbol.Result {
	f.mu.Lock()
	r, ok := f.known[q]
	f.mu.Unlock()
	if ok {
		return r
	}
	r = f.lookup(q.isVirtual, []uint64{q.at})[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= maxKnown {
		f.known = map[question]symbol.Result{}
	}
	f.known[q] = r
	return r
}

// LookupOffset answers for the instruction at a file offset.
func (f *file) LookupOffset(o addr.Offset) symbol.Result {
	if f.places != nil {
		return f.LookupOffsets([]addr.Offset{o})[0]
	}
	return f.one(question{false, uint64(o)})
}

// LookupVirt answers for the instruction at a virtual address.
func (f *file) LookupVirt(v addr.Virt) symbol.Result { return f.one(question{true, uint64(v)}) }

// LookupOffsets answers for many in one request.
func (f *file) LookupOffsets(offsets []addr.Offset) []symbol.Result {
	if f.places != nil {
		return f.places.Lookup(offsets, func(v []addr.Virt) []symbol.Result {
			addresses := make([]uint64, len(v))
			for i := range v {
				addresses[i] = uint64(v[i])
			}
			return f.lookup(true, addresses)
		})
	}
	addresses := make([]uint64, len(offsets))
	for i, o := range offsets {
		addresses[i] = uint64(o)
	}
	return f.lookup(false, addresses)
}

// AppendFrames appends the frames at a virtual address.
func (f *file) AppendFrames(dst []symbol.Frame, v addr.Virt) ([]symbol.Frame, symbol.Source) {
	r := f.LookupVirt(v)
	return append(dst, r.Frames...), r.Source
}

// Virt knows no address: the server finds it itself, unless it has a debug file alone.
func (f *file) Virt(o addr.Offset) (addr.Virt, bool) {
	if f.places != nil {
		return f.places.Virt(o)
	}
	return 0, false
}

// KnowsOffsets reports whether the server, or the mappings of the query, know where offsets of the file are.
func (f *file) KnowsOffsets() bool { return f.places == nil || f.places.Known() }

// Close gives nothing back.
func (f *file) Close() error { return nil }
