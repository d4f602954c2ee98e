package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"hallmark/addr"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/otlp"
	"hallmark/reason"
	"hallmark/server/blob"
	"hallmark/server/forward"
	"hallmark/server/symbols"
	"hallmark/symbol"
)

// Limits of profiles.
const (
	maxMessage     = otlp.DefaultMaxSize // bytes, compressed and not, and also with names
	maxBodies      = 4 * maxMessage      // bytes of bodies in memory at a time
	maxIdentities  = 1 << 14             // of a message, that are looked up
	maxNames       = 4 << 20             // calls that get names in a message
	waitingSenders = 2                   // messages that wait for indexes before they are passed on
	roomTime       = 5 * time.Second     // in which a request waits for memory
	nameTime       = 10 * time.Second    // in which a message waits for indexes that are being made
)

// Media types of OTLP.
const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
)

// profiles is what the server knows of messages that it gives names.
type profiles struct {
	bodies  pool          // bytes of requests
	decoded pool          // bytes that messages take, as otlp.Cost counts them
	waiting chan struct{} // a place for each message that waits for indexes
}

// forwardProfiles takes an OTLP message that is to be passed on with names.
func (s *Server) forwardProfiles(w *exchange, r *http.Request, who caller) error {
	if err := s.mayForward(r, who); err != nil {
		return err
	}
	isJSON, err := otlpType(r)
	if err != nil {
		return err
	}
	body, finish, err := s.body(w, r, maxMessage)
	if err != nil {
		return err
	}
	defer finish()
	b, done, err := s.readMessage(r, w.client, body)
	if err != nil {
		return err
	}
	defer done()
	if err := s.enqueue(r, w.client, b, isJSON); err != nil {
		return err
	}
	w.Header().Set("Content-Type", protobufType)
	answer := "" // an ExportProfilesServiceResponse without anything
	if isJSON {
		w.Header().Set("Content-Type", jsonType)
		answer = "{}"
	}
	_, err = io.WriteString(w, answer)
	return ignoreGone(err)
}

// mayForward returns an error if a message is not to be passed on, whatever it is.
func (s *Server) mayForward(r *http.Request, who caller) error {
	if s.Forward == nil {
		return fail(http.StatusNotFound, "this server passes no profiles on: it takes --forward")
	}
	if _, ok := who.trust(); !ok {
		return who.lacks(UploadCI, UploadAgent, Admin)
	}
	if hops := hopsOf(r); hops < 0 || hops >= forward.MaxHops {
		return fail(http.StatusLoopDetected, "the message came by %d forwarders: do they send to each other?", hops)
	}
	return nil
}

// hopsOf returns by how many forwarders a message came.
func hopsOf(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get(forward.HopsHeader)) // 0 where nobody says
	return n
}

// enqueue has a message passed on, if it is sound.
func (s *Server) enqueue(r *http.Request, client string, b []byte, isJSON bool) error {
	m, done, err := s.parse(r.Context(), client, b, isJSON, roomTime)
	if err != nil {
		return err
	}
	defer done()
	if m.Len() == 0 {
		return nil // OTLP has empty messages taken, and passed on by nobody
	}
	if isJSON {
		b, err = m.Append(nil)
	} else {
		b = bytes.Clone(b) // without the room behind it
	}
	if err != nil {
		return err
	}
	if err := s.Forward.Add(b, client, hopsOf(r)); err != nil {
		return &statusError{status: http.StatusServiceUnavailable, err: err}
	}
	return nil
}

// otlpType returns whether a request is JSON, or an error if it is nothing that OTLP has.
func otlpType(r *http.Request) (isJSON bool, err error) {
	text := r.Header.Get("Content-Type")
	switch kind, _, _ := mime.ParseMediaType(text); kind {
	case protobufType:
		return false, nil
	case jsonType:
		return true, nil
	}
	return false, fail(http.StatusUnsupportedMediaType, "Content-Type %.60q: %s and %s are known", text, protobufType, jsonType)
}

// readMessage returns a body, for which it takes memory until done.
func (s *Server) readMessage(r *http.Request, client string, body io.Reader) (b []byte, done func(), err error) {
	taken := int64(0)
	var held []*slot
	give := func() {
		for _, one := range held {
			one.release()
		}
	}
	// Memory is taken for what has come, not for what a client says will come.
	for {
		if len(b) == cap(b) {
			more := min(max(64<<10, taken), maxMessage+1-taken)
			one, err := s.profiles.bodies.take(r.Context(), client, more, roomTime)
			if err != nil {
				give()
				return nil, nil, err
			}
			held = append(held, one)
			taken += more
			b = append(make([]byte, 0, taken), b...)
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > maxMessage:
			give()
			return nil, nil, fail(http.StatusRequestEntityTooLarge, "the message has more than %d bytes", maxMessage)
		case err == io.EOF:
			return b, give, nil
		case err != nil:
			give()
			return nil, nil, s.arrival(r, err)
		}
	}
}

// parse decodes a message, which takes memory until done. It waits so long for that memory.
func (s *Server) parse(ctx context.Context, client string, b []byte, isJSON bool, wait time.Duration) (m *otlp.Message, done func(), err error) {
	count, decode := otlp.Cost, otlp.Parse
	if isJSON {
		count, decode = otlp.CostJSON, otlp.ParseJSON
	}
	cost, err := count(b, otlp.Options{})
	if err != nil {
		return nil, nil, messageError(err)
	}
	room, err := s.profiles.decoded.take(ctx, client, cost, wait)
	if err != nil {
		return nil, nil, err
	}
	if m, err = decode(b, otlp.Options{}); err != nil {
		room.release()
		return nil, nil, messageError(err)
	}
	return m, room.release, nil
}

// messageError is an error that the sender of a message made.
func messageError(err error) error {
	if errors.Is(err, profile.ErrTooLarge) {
		return &statusError{status: http.StatusRequestEntityTooLarge, err: err}
	}
	return &statusError{status: http.StatusBadRequest, err: err}
}

// forwarding is the client that messages are given names for which are passed on.
const forwarding = "forward"

// prepare gives a message names, before it is passed on.
func (s *Server) prepare(ctx context.Context, b []byte) ([]byte, error) {
	m, done, err := s.parse(ctx, forwarding, b, false, nameTime)
	if err != nil {
		return nil, err
	}
	defer done()
	// Half of the senders wait for indexes. The others pass on what is known.
	waiting, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	select {
	case s.profiles.waiting <- struct{}{}:
		defer func() { <-s.profiles.waiting }()
	default:
		cancel()
	}
	if n := s.nameMessage(ctx, waiting, asker{client: forwarding}, m, int64(maxMessage-len(b))); n.Locations == 0 {
		return b, nil
	}
	return m.Append(nil)
}

// nameMessage gives a message the names that the store has. No message makes the server fetch or keep
// anything: files that upstream servers or directories of this machine have do not count. It waits
// for indexes until waiting is done. The message grows by no more than so many bytes.
func (s *Server) nameMessage(ctx, waiting context.Context, by asker, m *otlp.Message, most int64) (n named) {
	files, names := 0, newNames()
	n.Named = m.Symbolize(most, func(f otlp.File) []symbol.Result {
		if files++; files > maxIdentities || ctx.Err() != nil {
			return nil
		}
		results, err := s.lookupStored(ctx, waiting, by, names, f, "")
		var miss *symbols.MissError
		if errors.As(err, &miss) && miss.Miss == symbols.Pending {
			n.pending = true
		}
		return results
	})
	s.countNamed(n.Named)
	return n
}

// named is what became of the locations of a profile.
type named struct {
	otlp.Named
	pending bool // indexes of some files are being made
}

func (s *Server) countNamed(n otlp.Named) {
	s.metrics.add(int64(n.Locations), "hallmark_profile_locations_total", "result", "named")
	s.metrics.add(int64(n.Bare), "hallmark_profile_locations_total", "result", "bare")
}

// names are what the indexes know of one profile, copied: an index may be closed before they are used.
type names struct {
	mu    sync.Mutex
	calls int   // that may still get names
	text  int64 // bytes of names that may still be copied
	known map[string]string
}

func newNames() *names { return &names{calls: maxNames, text: maxMessage, known: map[string]string{}} }

// lookup returns what an index knows of addresses, while there is room. An error is one of the store.
func (n *names) lookup(x *symbols.Index, f *otlp.File) ([]symbol.Result, error) {
	addresses, virt := f.Addresses, x.Virt
	if !x.HasCode() {
		virt = symbol.NewPlaces(x.CodeSegments(), f.Mapped).Virt
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]symbol.Result, len(addresses))
	cursor := x.Cursor()
	for i, a := range addresses {
		v, ok := addr.Virt(a.At), true
		if !a.Virtual {
			v, ok = virt(addr.Offset(a.At))
		}
		out[i] = symbol.Miss(reason.NoSymbol)
		if !ok && !x.HasCode() {
			out[i] = symbol.Miss(reason.DebugFileAlone)
		}
		if !ok {
			continue
		}
		frames, source, err := cursor.Frames(v)
		if err != nil {
			return out[:i], err
		}
		if n.calls -= len(frames); n.calls < 0 || n.text < 0 {
			return out[:i], nil
		}
		if len(frames) == 0 {
			continue
		}
		out[i] = symbol.Result{Frames: slices.Clone(frames), Source: source}
		for j := range out[i].Frames {
			f := &out[i].Frames[j]
			f.Func, f.Linkage, f.Symbol, f.File = n.copy(f.Readable()), n.copy(f.Linkage), n.copy(f.Symbol), n.copy(f.File)
		}
	}
	return out, nil
}

func (n *names) copy(s string) string {
	own, ok := n.known[s]
	if !ok {
		own = strings.Clone(s)
		n.known[own] = own
		n.text -= int64(len(own))
	}
	return own
}

// lookupStored returns what the index of a file that the store has knows of its addresses, while there is room for names.
// An index that is damaged has another one in its place. With an error of the store it returns what it knows until then.
func (s *Server) lookupStored(ctx, waiting context.Context, by asker, n *names, f otlp.File, path string) (out []symbol.Result, err error) {
	for range 2 {
		x, err := s.storedIndex(ctx, waiting, by, f, path)
		if err != nil {
			return nil, err
		}
		out, err = n.lookup(x, &f)
		x.Close()
		if err != nil {
			s.metrics.add(1, "hallmark_store_failures_total")
		}
		if !errors.Is(err, symbols.ErrDamaged) {
			return out, err
		}
	}
	return out, symbols.ErrDamaged
}

// storedIndex returns the index of a file that the store has, for the caller to close. The path, which may be empty, is
// what is shown of a file that it does not have.
func (s *Server) storedIndex(ctx, waiting context.Context, by asker, f otlp.File, path string) (*symbols.Index, error) {
	if s.Symbols == nil {
		return nil, &symbols.MissError{Miss: symbols.NoFile}
	}
	m, err := s.Store.Manifest(ctx, f.ID)
	if errors.Is(err, blob.ErrNotExist) {
		s.missing.note(by.name, f.ID, path)
		return nil, &symbols.MissError{Miss: symbols.NoFile}
	}
	if err != nil {
		s.metrics.add(1, "hallmark_store_failures_total")
		return nil, err
	}
	s.usedForIndex(ctx, by.name, m)
	x, err := s.index(ctx, waiting, by.slot, m)
	if err != nil {
		return nil, err
	}
	differs := x.Code != f.Content
	if !x.HasCode() {
		differs = !m.DebugFileNames()
	}
	if !f.Content.IsZero() && differs {
		x.Close()
		return nil, &symbols.MissError{Miss: symbols.NoFile, Text: "the file of this identity has other code"}
	}
	return x, nil
}

// writeStatus answers a request of OTLP with an error (google.rpc.Status), in the form of the request.
func writeStatus(w http.ResponseWriter, r *http.Request, text string) []byte {
	if isJSON, _ := otlpType(r); isJSON {
		w.Header().Set("Content-Type", jsonType)
		var b bytes.Buffer
		_ = json.NewEncoder(plaintext.JSON(&b)).Encode(map[string]string{"message": text}) // a text can be encoded
		return b.Bytes()
	}
	w.Header().Set("Content-Type", protobufType)
	return protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), plaintext.Line(text))
}
