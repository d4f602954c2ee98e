package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/fromany"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// kept is the list of profiles that the store has. The records in the store are the truth, which other servers
// change, too.
type kept struct {
	mu     sync.Mutex
	byID   map[string]*store.Profile
	newest []*store.Profile // of those that are not removed
	size   int64            // bytes in the store of these
	read   time.Time
}

// keptAge is how long the list is believed.
const keptAge = 30 * time.Second

// set takes over what the store has.
func (k *kept) set(all map[string]*store.Profile, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byID, k.read = all, now
	k.sort()
}

// sort is called under the lock. Those who have the old list keep it.
func (k *kept) sort() {
	k.newest, k.size = nil, 0
	for _, p := range k.byID {
		if p.Object != "" {
			k.newest = append(k.newest, p)
			k.size += p.Stored
		}
	}
	slices.SortFunc(k.newest, func(a, b *store.Profile) int { return compareNewest(a.Time, a.ID, b) })
}

// compareNewest compares a place in the list with a profile.
func compareNewest(at time.Time, id string, p *store.Profile) int {
	return cmp.Or(p.Time.Compare(at), strings.Compare(id, p.ID))
}

// note takes what has become of one profile.
func (k *kept) note(p *store.Profile, there bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[string]*store.Profile, len(k.byID)+1) // a reader of the store has the old one
	for id, old := range k.byID {
		all[id] = old
	}
	delete(all, p.ID)
	if there {
		all[p.ID] = p
	}
	k.byID = all
	k.sort()
}

func (k *kept) get() (byID map[string]*store.Profile, newest []*store.Profile, size int64, read time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byID, k.newest, k.size, k.read
}

// profileList returns the profiles of the store, newest first, as of half a minute ago or later. While the store is
// down, it returns those that were known.
func (s *Server) profileList(ctx context.Context) ([]*store.Profile, error) {
	_, newest, _, read := s.kept.get()
	if !read.IsZero() && time.Since(read) < keptAge {
		return newest, nil
	}
	_, err := s.fetches.do(ctx, "profiles", func(ctx context.Context) error {
		known, _, _, _ := s.kept.get()
		began := time.Now()
		all, err := s.Store.Profiles(ctx, known)
		if all == nil {
			return err
		}
		if err != nil {
			s.Log.Error("a profile's record is damaged", "error", err)
		}
		s.kept.set(all, began)
		return nil
	})
	if err != nil && (read.IsZero() || !errors.Is(err, blob.ErrUnavailable)) {
		return nil, err
	}
	_, newest, _, _ = s.kept.get()
	return newest, nil
}

// Bounds of what is said of a profile.
const (
	maxTitle    = 200 // bytes
	maxListed   = 200 // profiles on a page of the list
	usualListed = 50
)

// titleOf returns a title as it is kept: one line of plain text.
func titleOf(text string) string {
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "") + "…"
	}
	return strings.TrimSpace(plaintext.Line(text))
}

func profilePath(id string) string { return "/profiles/" + id }

func describeProfile(p *store.Profile) api.Profile {
	return api.Profile{ID: p.ID, URL: profilePath(p.ID), Time: p.Time, Role: string(p.Role), Kind: p.Kind, Title: p.Title, Size: p.Size, Samples: p.Samples, Binaries: p.Binaries}
}

// profileError is why bytes are no profile that can be shown.
func profileError(err error) error {
	switch {
	case errors.Is(err, profile.ErrTooLarge):
		return &statusError{status: http.StatusRequestEntityTooLarge, err: err}
	case errors.Is(err, errOpenTime):
		return &statusError{status: http.StatusRequestEntityTooLarge, err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, blob.ErrUnavailable), errors.Is(err, blob.ErrNotExist):
		return err
	}
	var known *statusError
	if errors.As(err, &known) {
		return err
	}
	return &statusError{status: http.StatusUnprocessableEntity, err: err}
}

// keep takes a profile in any format, and keeps it as it came.
func (s *Server) keep(w *exchange, r *http.Request, who caller) error {
	trust, _ := who.trust()
	body, finish, err := s.body(w, r, maxMessage)
	if err != nil {
		return err
	}
	defer finish()
	b, given, err := s.readMessage(r, w.client, body)
	if err != nil {
		return err
	}
	defer given()
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	p := store.Profile{Role: trust, Title: titleOf(r.URL.Query().Get("title"))}
	if err := s.inspect(r.Context(), w.client, b, &p); err != nil {
		s.metrics.add(1, "hallmark_profiles_refused_total", "reason", strconv.Itoa(statusOf(err)))
		return err
	}
	spool, err := s.Store.Spool(r.Context(), bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer spool.Close()
	kept, isNew, err := s.Store.AddProfile(r.Context(), spool, p)
	if err != nil {
		return err
	}
	s.kept.note(kept, true)
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
		s.metrics.add(1, "hallmark_profiles_kept_total", "kind", strings.ReplaceAll(kept.Kind, " ", "-"))
		s.makeRoom(r.Context())
	}
	w.Header().Set("Location", profilePath(kept.ID))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return s.writeJSON(w, api.KeptProfile{Profile: describeProfile(kept), New: isNew})
}

// inspect reads a profile, so that nothing else is kept.
func (s *Server) inspect(ctx context.Context, client string, b []byte, p *store.Profile) error {
	memory := fromany.Memory(int64(len(b)))
	room, err := s.profiles.decoded.take(ctx, client, memory, roomTime)
	if err != nil {
		return err
	}
	defer room.release()
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, errOpenTime)
	defer cancel()
	read, kind, err := fromany.Read(ctx, bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return profileError(err)
	}
	p.Kind = string(kind)
	p.Samples, p.Binaries = fromany.Counts(read)
	return nil
}

// makeRoom removes the oldest profiles where there are more than are kept. What cannot be removed now goes with
// the next garbage.
func (s *Server) makeRoom(ctx context.Context) {
	all, err := s.profileList(ctx)
	if err != nil {
		return
	}
	limits := s.Retention.Profiles
	limits.Age = 0 // that is for the garbage collection
	for _, p := range limits.Excess(all, s.now()) {
		ok, err := s.Store.RemoveProfile(ctx, p)
		if err != nil {
			s.Log.Warn("a profile that is too many stays", "id", p.ID, "error", err)
			return
		}
		if ok {
			s.Log.Info("removed", "profile", p.ID, "reason", "size", "bytes", p.Stored)
			s.metrics.add(1, "hallmark_collected_total", "kind", "profile")
		}
		s.kept.note(p, false)
	}
}

// listProfiles answers which profiles there are, newest first.
func (s *Server) listProfiles(w *exchange, r *http.Request, _ caller) error {
	q := r.URL.Query()
	limit, err := numberIn(q.Get("limit"), usualListed, 1, maxListed)
	if err != nil {
		return err
	}
	all, err := s.profileList(r.Context())
	if err != nil {
		return err
	}
	if text := strings.ToLower(q.Get("q")); text != "" {
		var found []*store.Profile
		for _, p := range all {
			if strings.HasPrefix(p.ID, text) || strings.Contains(strings.ToLower(p.Title), text) {
				found = append(found, p)
			}
		}
		all = found
	}
	out := api.Profiles{Profiles: []api.Profile{}, Total: len(all)}
	if after := q.Get("after"); after != "" {
		at, id, err := parsePlace(after)
		if err != nil {
			return err
		}
		n, found := slices.BinarySearchFunc(all, id, func(p *store.Profile, id string) int { return -compareNewest(at, id, p) })
		if found {
			n++
		}
		all = all[n:]
	}
	page := all[:min(limit, len(all))]
	for _, p := range page {
		out.Profiles = append(out.Profiles, describeProfile(p))
	}
	if len(page) < len(all) {
		last := page[len(page)-1]
		out.Next = strconv.FormatInt(last.Time.Unix(), 10) + "-" + last.ID
	}
	return s.writeJSON(w, out)
}

// parsePlace reads a place in the list, as Profiles.Next has it.
func parsePlace(text string) (time.Time, string, error) {
	seconds, id, _ := strings.Cut(text, "-")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || !store.IsObject(id) {
		return time.Time{}, "", fail(http.StatusBadRequest, "after=%.100q is no place in the list", text)
	}
	return time.Unix(n, 0), id, nil
}

// numberIn reads a parameter.
func numberIn(text string, without, least, most int) (int, error) {
	if text == "" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fail(http.StatusBadRequest, "%.40q is no number from %d to %d", text, least, most)
	}
	return n, nil
}

// getProfile answers with the bytes of a profile, or with a pprof profile that has names.
func (s *Server) getProfile(w *exchange, r *http.Request, who caller) error {
	id := r.PathValue("id")
	if r.URL.Query().Get("named") != "" {
		if !who.may(Symbolize) {
			return who.lacks(Symbolize)
		}
		o, err := s.openProfile(r.Context(), w.asker(), id, "")
		if err != nil {
			return err
		}
		named := named{pending: o.pending}
		named.Locations, named.Bare = o.named, o.bare
		named.describe(w.Header(), "application/octet-stream")
		return s.download(w, o)
	}
	p, err := s.Store.Profile(r.Context(), id)
	if err != nil {
		return err
	}
	o, err := s.Store.OpenProfile(r.Context(), p)
	if err != nil {
		return err
	}
	defer o.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+p.ID[:12]+`"`)
	h.Set("Cache-Control", "private, max-age=60")
	h.Set("ETag", `"`+p.ID+`"`)
	checked := checkedContent(o.Stream())
	http.ServeContent(w, r, "", p.Time, checked)
	return checked.err
}

// removeProfile removes a profile for an administrator.
func (s *Server) removeProfile(w *exchange, r *http.Request, _ caller) error {
	p, err := s.Store.Profile(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if _, err := s.Store.RemoveProfile(r.Context(), p); err != nil {
		return err
	}
	s.kept.note(p, false)
	s.opened.drop(p.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
