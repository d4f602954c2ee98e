package server

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/internal/elffile"
	"hallmark/server/api"
	"hallmark/server/store"
)

// Bounds of searches.
const (
	maxSearch   = 300 // bytes of what is searched
	maxFound    = 200 // identities on a page
	usualFound  = 50
	maxShown    = 4 // names of an identity in an answer
	maxSections = 1000
)

// search answers which identities begin with a text, or have it in a path, the name of an archive, or of neither
// where it is empty. It looks at the catalogue in memory.
func (s *Server) search(w *exchange, r *http.Request, _ caller) error {
	q := r.URL.Query()
	text := strings.TrimSpace(q.Get("q"))
	if len(text) > maxSearch {
		return fail(http.StatusBadRequest, "q has more than %d bytes", maxSearch)
	}
	limit, err := numberIn(q.Get("limit"), usualFound, 1, maxFound)
	if err != nil {
		return err
	}
	offset, err := numberIn(q.Get("offset"), 0, 0, 1<<30)
	if err != nil {
		return err
	}
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	out := find(s.Store.Catalog(), text, offset, limit)
	if s.Local != nil {
		_, out.Scanned = s.Local.Counts()
	}
	return s.writeJSON(w, out)
}

// find searches as Server.search does.
func find(c *store.Catalog, text string, offset, limit int) api.SearchAnswer {
	out := api.SearchAnswer{Results: []api.SearchResult{}, Complete: c.Complete()}
	for e := range c.Matching(text, func() { out.Complete = false }) {
		if out.Total++; out.Total <= offset || len(out.Results) >= limit {
			continue
		}
		found := api.SearchResult{ID: e.ID, Symbols: string(e.Symbols), Files: e.Files, Names: []string{}}
		for _, n := range e.Names {
			if !slices.Contains(found.Names, n.File) && len(found.Names) < maxShown {
				found.Names = append(found.Names, n.File)
			}
		}
		out.Results = append(out.Results, found)
	}
	return out
}

// sections returns the sections of the files that are served for an identity.
func (s *Server) sections(r *http.Request, client string, m *store.Manifest) (out []api.Section, err error) {
	for kind, f := range map[string]*store.File{"executable": m.Executable(), "debuginfo": m.DebugInfo()} {
		if f == nil || kind == "debuginfo" && f == m.Executable() {
			continue
		}
		o, err := s.Store.Object(r.Context(), f.Stored())
		if err != nil {
			return nil, err
		}
		image, err := s.headersOf(r.Context(), client, o)
		if image != nil {
			for i := range image.Sections {
				section := &image.Sections[i]
				if section.Name != "" && len(out) < maxSections {
					out = append(out, api.Section{Of: kind, Name: section.Name, Size: section.Size, Bytes: section.Type != elffile.SHT_NOBITS})
				}
			}
		}
		o.Close()
		var known *statusError
		if errors.As(err, &known) || r.Context().Err() != nil {
			return nil, err
		}
		if err != nil && image == nil {
			return nil, fail(http.StatusUnprocessableEntity, "%v", err)
		}
	}
	slices.SortStableFunc(out, func(a, b api.Section) int { return -strings.Compare(a.Of, b.Of) })
	return out, nil
}

// health answers how the server is, for people.
func (s *Server) health(w *exchange, r *http.Request, who caller) error {
	answers := s.storeAnswers(r.Context())
	if answers {
		_, _ = s.profileList(r.Context()) // what is known is shown
	}
	_, profiles, size, _ := s.kept.get()
	out := api.Health{
		Started: s.started.UTC().Truncate(time.Second), Identities: s.Store.Catalog().Len(), Complete: s.Store.Catalog().Complete(),
		Profiles: len(profiles), ProfileBytes: size, Open: s.opened.count(), StoreAnswers: answers, ReadOnly: s.ReadOnly,
		Refused: s.refused.counts(), Connections: s.conns.count(), Requests: s.gates.known.inUse() + s.gates.strangers.inUse(),
		Symbolizes: s.Symbols != nil, Forwards: s.Forward != nil, Who: who.name, Tokens: s.Tokens != "",
	}
	out.BrokenFiles, out.Broken = s.brokenFiles()
	out.DamagedLists, out.Pools = s.Store.DamagedLists(), s.pools()
	out.MemoryBytes, out.StoreBytes, out.Version = residentMemory(), s.stored.Load(), version()
	if s.Upstream != nil {
		for _, u := range s.Upstream.States() {
			out.Upstream = append(out.Upstream, api.Upstream{URL: u.URL, Resting: u.Resting})
		}
	}
	if s.Local != nil {
		out.ScannedPackages, out.ScannedIdentities = s.Local.Counts()
	}
	return s.writeJSON(w, out)
}

// globOf returns a pattern of fnmatch(3) as path.Match has it.
func globOf(pattern string) string { return strings.ReplaceAll(pattern, "[!", "[^") }

// named adds to what the store has by a key of /metadata what --scan and upstream servers have, and returns whether that is
// all there is. While upstream servers are asked, the request has no slot.
func (s *Server) named(w *exchange, r *http.Request, key, value string, found []entry, complete bool) ([]entry, bool, error) {
	seen, size := map[entry]bool{}, 0
	for _, e := range found {
		seen[e] = true
		size += e.size()
	}
	add := func(e entry) bool {
		if size += e.size(); len(found) >= maxResults || size > maxResultText {
			complete = false
			return false
		}
		if !seen[e] {
			seen[e] = true
			found = append(found, e)
		}
		return true
	}
	if s.Local != nil && !s.namedHere(r.Context(), key, value, add) {
		complete = false
	}
	if s.Upstream != nil {
		forwarded, ok := s.forwardedFor(r)
		if !ok {
			return found, false, nil
		}
		w.slot.pause()
		place, err := s.asks.take(r.Context(), w.client, 1, heavyTime)
		if err != nil {
			return nil, false, err
		}
		defer place.release()
		others, all := s.Upstream.Metadata(r.Context(), key, value, forwarded)
		if err := w.slot.resume(r.Context()); err != nil {
			return nil, false, err
		}
		complete = complete && all
		for _, m := range others {
			if !add(entry{m.Type, m.BuildID.String(), headerText(m.File), headerText(m.Archive)}) {
				break
			}
		}
	}
	return found, complete, nil
}

// namedHere calls add with what --scan has, and returns whether that is all.
func (s *Server) namedHere(ctx context.Context, key, value string, add func(entry) bool) bool {
	var id buildid.ID
	is := func(name string) bool { return name == value }
	switch key {
	case "glob":
		is = func(name string) bool { ok, _ := path.Match(globOf(value), name); return ok }
	case "buildid":
		var err error
		if id, err = buildid.Parse(value); err != nil {
			return true
		}
		is = func(string) bool { return true }
	}
	begun, n, cut := time.Now(), 0, false
	complete := s.Local.Names(id, func(kind string, id buildid.ID, file, archive string) bool {
		if n++; n%1000 == 0 && (ctx.Err() != nil || time.Since(begun) > searchTime) {
			cut = true
			return false
		}
		return !is(file) || add(entry{kind, id.String(), file, archive})
	})
	return complete && !cut
}
