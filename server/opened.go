package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"hallmark/internal/atomicfile"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/fromany"
	"hallmark/profile/query"
	"hallmark/server/blob"
	"hallmark/server/store"
	"hallmark/web"
)

// Bounds of profiles that are shown.
const (
	openTime       = time.Minute // in which a profile is read and gets its names
	defaultOpened  = 16          // profiles that are open at a time
	defaultOpening = 1 << 30     // bytes that these take
	pendingTime    = 10 * time.Second
	namedTime      = time.Minute      // in which new files of the store are no reason to look for names again
	openedTime     = 10 * time.Minute // after which names are looked for again, as other servers may have taken files
)

var errOpenTime = fmt.Errorf("reading the profile takes more than %v: fetch its bytes, and look at them with 'hallmark view'", openTime)

// opened are the profiles that were looked at last, with the names that the store had.
type opened struct {
	mu    sync.Mutex
	all   map[string]*openedProfile
	clock uint64
	bytes int64
}

// An openedProfile is a profile that pages are shown of, or two that are compared.
type openedProfile struct {
	id, base   string
	shown      *web.Profile
	pages      http.Handler
	memory     int64 // bytes, an estimate
	named      int   // locations that got names here
	bare       int   // that have an identity and no name
	pending    bool  // indexes of some files are being made
	generation int64 // of the catalogue when names were looked for
	at         time.Time
	used       uint64
}

// get returns a profile that is open, unless the store may have other names for it by now.
func (o *opened) get(key string, generation int64) *openedProfile {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.all[key]
	if p == nil {
		return nil
	}
	age := time.Since(p.at)
	if age > openedTime || p.pending && age > pendingTime || p.generation != generation && age > namedTime {
		return nil
	}
	o.clock++
	p.used = o.clock
	return p
}

// put keeps a profile open, in place of those that were used longest ago.
func (o *opened) put(key string, p *openedProfile, count int, memory int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]*openedProfile{}
	}
	o.remove(key)
	o.clock++
	p.used = o.clock
	o.all[key] = p
	o.bytes += p.memory
	for len(o.all) > count || o.bytes > memory {
		oldest := key
		for k, c := range o.all {
			if c.used < o.all[oldest].used {
				oldest = k
			}
		}
		o.remove(oldest)
	}
}

// remove is called under the lock.
func (o *opened) remove(key string) {
	if p := o.all[key]; p != nil {
		o.bytes -= p.memory
		delete(o.all, key)
	}
}

// drop closes what shows a profile.
func (o *opened) drop(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, p := range o.all {
		if p.id == id || p.base == id {
			o.remove(key)
		}
	}
}

func (o *opened) count() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(len(o.all))
}

// openProfile returns a profile with the names that the store has by now, and compared with a base where that is not
// empty. Whoever asks for one that is being opened waits for it.
func (s *Server) openProfile(ctx context.Context, by asker, id, base string) (*openedProfile, error) {
	if !store.IsObject(id) || base != "" && !store.IsObject(base) {
		return nil, fail(http.StatusNotFound, "no profile has this name: it is a SHA-256 in lower-case hexadecimal")
	}
	key := id + " " + base
	if o := s.opened.get(key, s.Store.Catalog().Changes()); o != nil {
		return o, nil
	}
	_, value, err := s.fetches.share(ctx, "open "+key, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, openTime, errOpenTime)
		defer cancel()
		o, err := s.readOpened(ctx, by, id, base)
		if err != nil {
			return nil, profileError(err)
		}
		s.opened.put(key, o, s.Opened, s.OpenedMemory)
		return o, nil
	})
	o, ok := value.(*openedProfile)
	if err == nil && !ok {
		err = errors.New("a profile was opened, and is none")
	}
	return o, err
}

// readOpened reads a profile and its base, and looks for names.
func (s *Server) readOpened(ctx context.Context, by asker, id, base string) (*openedProfile, error) {
	slot, err := s.takeHeavy(ctx, by.client)
	if err != nil {
		return nil, err
	}
	defer slot.release()
	by.slot = slot
	o := &openedProfile{id: id, base: base, at: time.Now(), generation: s.Store.Catalog().Changes()}
	whole, p, title, err := s.readNamed(ctx, by, id, o)
	if err != nil {
		return nil, err
	}
	o.shown = &web.Profile{Title: title, Download: func(w io.Writer) error { return s.writeNamed(w, whole) }}
	var other *compact.Profile
	if base == id {
		other, o.shown.BaseTitle = p, title
	} else if base != "" {
		if _, other, o.shown.BaseTitle, err = s.readNamed(ctx, by, base, o); err != nil {
			return nil, err
		}
		kind, err := p.SampleType("")
		if err == nil {
			_, err = other.SampleType(p.SampleTypes()[kind].Type)
		}
		if err != nil {
			return nil, fail(http.StatusUnprocessableEntity, "the profiles count different things: %v", err)
		}
	}
	o.shown.Set = query.New(p, other)
	o.shown.Version = o.shown.Set.Version()
	o.memory = footprint(p) + footprint(other)
	if o.memory > s.OpenedMemory {
		return nil, fail(http.StatusRequestEntityTooLarge, "showing the profile takes about %d MiB of memory, and the server has %d MiB for all that are open: fetch its bytes, and look at them with 'hallmark view'", o.memory>>20, s.OpenedMemory>>20)
	}
	o.pages = web.Handler(oneProfile{o.shown}, s.viewer.turns)
	return o, context.Cause(ctx)
}

// readNamed reads a profile of the store and gives it names. It returns the whole profile, and what pages show of it, as
// those of 'hallmark view' do. No profile makes the server fetch or keep anything, as for those that pass through.
func (s *Server) readNamed(ctx context.Context, by asker, id string, o *openedProfile) (whole, shown *compact.Profile, title string, err error) {
	record, err := s.Store.Profile(ctx, id)
	if err != nil {
		return nil, nil, "", err
	}
	if record.Size > maxMessage {
		return nil, nil, "", fail(http.StatusRequestEntityTooLarge, "the profile has more than %d bytes", maxMessage)
	}
	memory := fromany.Memory(record.Size)
	room, err := s.profiles.decoded.take(ctx, by.client, memory, roomTime)
	if err != nil {
		return nil, nil, "", err
	}
	defer room.release()
	content, err := s.Store.OpenProfile(ctx, record)
	if err != nil {
		return nil, nil, "", err
	}
	defer content.Close()
	p, _, err := fromany.Read(ctx, content, content.Size())
	if err != nil {
		return nil, nil, "", err
	}
	whole = p
	if s.Symbols != nil {
		waiting, cancel := context.WithTimeout(ctx, nameTime)
		defer cancel()
		known := &storeSymbols{server: s, by: by, waiting: waiting, names: newNames()}
		places := p.Places()
		before := locationsWithNames(places)
		misses, err := profile.Symbolize(ctx, places, known)
		if err != nil {
			return nil, nil, "", err
		}
		o.named += locationsWithNames(places) - before
		o.bare += len(misses)
		o.pending = o.pending || known.pending.Load()
		p = p.WithSymbols(places, misses)
		whole = p
		profile.NameStarts(ctx, places, known)
		p = whole.WithSymbols(places, misses)
	}
	if err := whole.Check(); err != nil {
		return nil, nil, "", err
	}
	if shown, err = p.Interesting(); err != nil {
		return nil, nil, "", err
	}
	title = record.Title
	if title == "" {
		title = record.Kind + " " + record.ID[:12]
	}
	return whole, shown, title, nil
}

// footprint estimates how many bytes a profile takes with what is asked of it: the stacks, the selections and tables
// of the pages that are open, and names.
func footprint(p *compact.Profile) int64 {
	if p == nil {
		return 0
	}
	sum := int64(1 << 20)
	tree := p.Stacks()
	for n := range tree.Nodes() {
		sum += 256 + 4*int64(len(tree.Frames(uint32(n))))
	}
	sum += int64(p.Samples()) * int64(32+9*len(p.SampleTypes()))
	if p.HasTimes() {
		var times []int64
		for row := range p.Samples() {
			times = p.Times(times[:0], row)
			sum += 8 * int64(len(times))
		}
	}
	for n := range p.LabelSets() {
		for _, l := range p.LabelSet(uint32(n)) {
			sum += 512 + int64(len(l.Value()))
		}
	}
	for n := range p.Locations() {
		sum += 128 + 160*int64(len(p.Lines(p.Location(uint32(n)))))
	}
	for _, f := range p.Functions() {
		sum += 512 + int64(len(f.Name)+len(f.SystemName)+len(f.Filename))
	}
	return sum
}

// writeNamed writes a profile by pprof, which takes several times the memory.
func (s *Server) writeNamed(w io.Writer, p *compact.Profile) error {
	memory := min(8*footprint(p), maxBodies)
	room, err := s.profiles.decoded.take(context.Background(), "", memory, roomTime)
	if err != nil {
		return web.ErrBusy
	}
	defer room.release()
	return profile.Write(w, p.Pprof())
}

// download answers with an open profile by pprof. It is whole before any of it is sent, as the client may be slow.
func (s *Server) download(w *exchange, o *openedProfile) error {
	f, err := atomicfile.Scratch()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := o.shown.Download(f); err != nil {
		if errors.Is(err, web.ErrBusy) {
			return s.profiles.decoded.busy
		}
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return ignoreGone(err)
}

// oneProfile is a source of one profile, which the path names.
type oneProfile struct{ shown *web.Profile }

func (o oneProfile) Open(context.Context, string, string) (*web.Profile, error) { return o.shown, nil }

// noProfile is a source of pages alone.
type noProfile struct{}

func (noProfile) Open(context.Context, string, string) (*web.Profile, error) {
	return nil, web.ErrUnknown
}

// viewer is what pages of profiles are served by.
type viewer struct {
	site  http.Handler // the page of the server, and what it loads
	shell http.Handler // the page of a profile, and what it loads
	turns *turns       // of all profiles together
}

func newViewer() viewer {
	t := &turns{
		places:    pool{size: int64(max(2, runtime.GOMAXPROCS(0))), busy: web.ErrBusy, eager: true},
		downloads: pool{size: web.MaxDownloads, busy: web.ErrBusy},
		unsent:    pool{size: web.MaxUnsent, busy: web.ErrBusy},
	}
	return viewer{web.Site(), web.Handler(noProfile{}, t), t}
}

// turns divide between clients what pages of profiles take.
type turns struct{ places, downloads, unsent pool }

// clientTo returns whom an answer goes to, "" for the server itself.
func clientTo(w http.ResponseWriter) string {
	if e, ok := w.(*exchange); ok {
		return e.client
	}
	return ""
}

// turnTime is how long a question waits for its turn.
const turnTime = 10 * time.Minute

// Turn implements web.Turns.
func (t *turns) Turn(ctx context.Context, w http.ResponseWriter) (func(), error) {
	s, err := t.places.take(ctx, clientTo(w), 1, turnTime)
	return s.release, err
}

// Download implements web.Turns.
func (t *turns) Download(w http.ResponseWriter) (func(), error) {
	return t.downloads.try(clientTo(w), 1)
}

// Unsent implements web.Turns.
func (t *turns) Unsent(w http.ResponseWriter, bytes int64) (func(), error) {
	return t.unsent.try(clientTo(w), bytes)
}

// profilePage leads to the page of a profile: what it loads is below its own path, and so are its questions.
func (s *Server) profilePage(w *exchange, r *http.Request, _ caller) error {
	id, base := r.PathValue("id"), r.URL.Query().Get("base")
	if !store.IsObject(id) || base != "" && !store.IsObject(base) {
		return fail(http.StatusNotFound, "no profile has this name: it is a SHA-256 in lower-case hexadecimal")
	}
	to := id + "/"
	if base != "" {
		to += "vs/" + base + "/"
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// viewProfile serves the page of a profile, and its questions. The path of one that is compared has "vs/BASE/" in it.
func (s *Server) viewProfile(w *exchange, r *http.Request, _ caller) error {
	id, rest, base := r.PathValue("id"), r.PathValue("rest"), ""
	prefix := "/profiles/" + id
	if more, ok := strings.CutPrefix(rest, "vs/"); ok {
		if base, rest, ok = strings.Cut(more, "/"); !ok {
			return fail(http.StatusNotFound, "no page has this name")
		}
		prefix += "/vs/" + base
	}
	if !strings.HasPrefix(rest, "api/") {
		http.StripPrefix(prefix, s.viewer.shell).ServeHTTP(w, r)
		return nil
	}
	o, err := s.openProfile(r.Context(), w.asker(), id, base)
	if errors.Is(err, blob.ErrNotExist) {
		err = fail(http.StatusNotFound, "the server has no such profile, or has it no longer")
	}
	if err != nil {
		return err
	}
	http.StripPrefix(prefix, o.pages).ServeHTTP(w, r)
	return nil
}
