package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/profile/otlp"
	"hallmark/reason"
	"hallmark/server/symbols"
	"hallmark/symbol"
)

// Headers of a profile that was rewritten: how many locations got names, and how many with an identity have
// none. Retry-After says that indexes of some files are still being made.
const (
	namedHeader = "Hallmark-Named"
	bareHeader  = "Hallmark-Bare"
)

// rewrite answers with the profile that it was sent, with names: in pprof's format or OTLP's, compressed by gzip
// where it was. Names come from where those of forwardProfiles do.
func (s *Server) rewrite(w *exchange, r *http.Request, who caller) error {
	if s.Symbols == nil {
		return fail(http.StatusNotFound, "this server does not symbolize")
	}
	body, finish, err := s.body(w, r, maxMessage)
	if err != nil {
		return err
	}
	defer finish()
	in, given, err := s.readMessage(r, w.client, body)
	if err != nil {
		return err
	}
	defer given()
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	b, isGzip := in, bytes.HasPrefix(in, []byte{0x1f, 0x8b})
	if isGzip {
		z, err := gzip.NewReader(bytes.NewReader(in))
		if err != nil {
			return encodingError("gzip", err)
		}
		if b, given, err = s.readMessage(r, w.client, &decoding{&atMost{z, maxMessage}, "gzip"}); err != nil {
			return err
		}
		defer given()
	}
	waiting, cancel := context.WithTimeout(r.Context(), defaultWait)
	defer cancel()
	if otlp.Detect(b) {
		return s.rewriteOTLP(w, r, waiting, b, isGzip)
	}
	return s.rewritePprof(w, r, waiting, in)
}

// rewriteOTLP answers with a message.
func (s *Server) rewriteOTLP(w *exchange, r *http.Request, waiting context.Context, b []byte, isGzip bool) error {
	isJSON := otlp.IsJSON(b)
	m, done, err := s.parse(r.Context(), w.client, b, isJSON, roomTime)
	if err != nil {
		return err
	}
	defer done()
	named := s.nameMessage(r.Context(), waiting, w.asker(), m, int64(maxMessage-len(b)))
	encode, kind := m.Append, protobufType
	if isJSON {
		encode, kind = m.AppendJSON, jsonType
	}
	out, err := encode(nil)
	if err != nil {
		return err
	}
	if isGzip {
		kind = "application/gzip"
	}
	named.describe(w.Header(), kind)
	done() // the client may be slow
	w.slot.release()
	if !isGzip {
		_, err = w.Write(out)
		return ignoreGone(err)
	}
	z := gzip.NewWriter(w)
	_, err = z.Write(out)
	return ignoreGone(errors.Join(err, z.Close()))
}

// describe sets the headers of a profile with names.
func (n *named) describe(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set(namedHeader, strconv.Itoa(n.Locations))
	h.Set(bareHeader, strconv.Itoa(n.Bare))
	if n.pending {
		h.Set("Retry-After", retryAfter)
	}
}

// rewritePprof answers with a profile by pprof.
func (s *Server) rewritePprof(w *exchange, r *http.Request, waiting context.Context, in []byte) error {
	memory := profile.ReadOptions{}.Limits(int64(len(in))).Memory
	room, err := s.profiles.decoded.take(r.Context(), w.client, memory, roomTime)
	if err != nil {
		return err
	}
	defer room.release()
	p, limits, err := profile.ReadLimited(bytes.NewReader(in), profile.ReadOptions{})
	if err != nil {
		return messageError(err)
	}
	known := &storeSymbols{server: s, by: w.asker(), waiting: waiting, names: newNames()}
	before := locationsWithNames(p)
	misses, err := profile.Symbolize(r.Context(), p, known)
	if err != nil {
		return err
	}
	if err := profile.Check(p, limits); err != nil {
		return messageError(err)
	}
	n := named{pending: known.pending.Load()}
	n.Locations, n.Bare = locationsWithNames(p)-before, len(misses)
	s.countNamed(n.Named)
	var out bytes.Buffer // the client may be slow
	if err := profile.Write(&out, p); err != nil {
		return err
	}
	room.release()
	w.slot.release()
	n.describe(w.Header(), "application/octet-stream")
	_, err = w.Write(out.Bytes())
	return ignoreGone(err)
}

// locationsWithNames returns how many locations have functions.
func locationsWithNames(p *pprof.Profile) (n int) {
	for _, l := range p.Location {
		if len(l.Line) > 0 {
			n++
		}
	}
	return n
}

// storeSymbols are the symbols that the store has, for profiles.
type storeSymbols struct {
	server  *Server
	by      asker
	waiting context.Context
	names   *names
	pending atomic.Bool // an index is being made
}

var _ profile.Starts = (*storeSymbols)(nil)

// Starts implements profile.Starts by the indexes of the store. It waits for none longer than Lookup, and it does not
// know where functions start of which there is a debug file alone.
func (k *storeSymbols) Starts(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []addr.Offset {
	unknown := slices.Repeat([]addr.Offset{symbol.NoStart}, len(offsets))
	if k.knows(b) != reason.None {
		return unknown
	}
	x, err := k.server.storedIndex(ctx, k.waiting, k.by, otlp.File{ID: b.ID, Content: b.Content}, b.Path)
	if err != nil {
		return unknown
	}
	defer x.Close()
	if !x.HasCode() {
		return unknown
	}
	starts, err := x.Starts(offsets)
	if err != nil {
		return unknown
	}
	return starts
}

// knows returns why nothing of a file is known here, whatever the store has.
func (k *storeSymbols) knows(b *profile.Binary) reason.Reason {
	switch {
	case strings.HasPrefix(b.Path, "[") && b.Path != "[vdso]":
		return reason.NotLookedUp
	case b.Rival && b.Content.IsZero():
		return reason.DifferentContent
	}
	return reason.None
}

// Lookup implements profile.Symbols. Offsets of the kernel and of its modules do not count from the start of a
// file. A file that another one has taken the identity from is known by its content alone. The store knows no owner of
// a file on another machine, so it is no profile.Witness.
func (k *storeSymbols) Lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	miss := func(r reason.Reason) []symbol.Result {
		out := make([]symbol.Result, len(offsets))
		for i := range out {
			out[i] = symbol.Miss(r)
		}
		return out
	}
	if why := k.knows(b); why != reason.None {
		return miss(why)
	}
	addresses := make([]otlp.Address, len(offsets))
	for i, o := range offsets {
		addresses[i].At = uint64(o)
	}
	f := otlp.File{ID: b.ID, Content: b.Content, Addresses: addresses}
	if !b.Rival {
		f.Mapped = profile.Mapped(b)
	}
	out, err := k.server.lookupStored(ctx, k.waiting, k.by, k.names, f, b.Path)
	var why *symbols.MissError
	switch {
	case errors.As(err, &why):
		if why.Miss == symbols.Pending {
			k.pending.Store(true)
			return miss(reason.NotLookedUp)
		}
		return miss(reason.NoFile)
	}
	rest := reason.NotLookedUp // there is no room for more
	if err != nil {
		rest = reason.ServerFailed
	}
	for range len(offsets) - len(out) {
		out = append(out, symbol.Miss(rest))
	}
	return out
}
