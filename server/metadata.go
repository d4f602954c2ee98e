package server

import (
	"context"
	"net/http"
	"path"
	"strings"
	"time"

	"hallmark/buildid"
)

// globOf returns a pattern of fnmatch(3) as path.Match has it.
func globOf(pattern string) string { return strings.ReplaceAll(pattern, "[!", "[^") }

// named adds to what the store has by a key of /metadata what --scan and upstream servers have, and returns whether that is
// all there is.
func (s *Server) named(r *http.Request, key, value string, found []entry, complete bool) ([]entry, bool) {
	seen := map[entry]bool{}
	for _, e := range found {
		seen[e] = true
	}
	add := func(e entry) bool {
		if len(found) >= maxResults {
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
			return found, false
		}
		others, all := s.Upstream.Metadata(r.Context(), key, value, forwarded)
		complete = complete && all
		for _, m := range others {
			if !add(entry{m.Type, m.BuildID.String(), headerText(m.File), headerText(m.Archive)}) {
				break
			}
		}
	}
	return found, complete
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
