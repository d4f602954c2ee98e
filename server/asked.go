package server

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/server/api"
)

// askings count how often identities were asked for, and by whom: those that are there, or those that are not.
// Clients choose them, so their number is bounded: one that comes when there is no room takes the place of a rare one.
type askings struct {
	mu  sync.Mutex
	ids map[buildid.ID]*counted
}

type counted struct {
	count int64
	last  time.Time
	name  string           // a path of the file, as a profile has it
	by    map[string]int64 // names of tokens
}

const (
	maxAsked     = 10000
	maxAskers    = 8    // names of tokens for an identity
	rarestOf     = 32   // identities, of which the rarest makes room
	maxNamed     = 1024 // bytes of a path
	maxMissPage  = 200
	usualMissing = 50
)

// note counts an identity once, for a token. The names of both may be empty.
func (m *askings) note(who string, id buildid.ID, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = map[buildid.ID]*counted{}
	}
	one := m.ids[id]
	if one == nil {
		if len(m.ids) >= maxAsked {
			m.makeRoom()
		}
		one = new(counted)
		m.ids[id] = one
	}
	one.count++
	one.last = time.Now()
	if name != "" && len(name) <= maxNamed {
		one.name = strings.Clone(name)
	}
	if _, ok := one.by[who]; who != "" && (ok || len(one.by) < maxAskers) {
		if one.by == nil {
			one.by = map[string]int64{}
		}
		one.by[who]++
	}
}

// of returns how often an identity was asked for; nil for never.
func (m *askings) of(id buildid.ID) *api.Asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.ids[id]
	if one == nil {
		return nil
	}
	out := &api.Asked{Count: one.count, Last: one.last.UTC().Truncate(time.Second)}
	for who, count := range one.by {
		out.By = append(out.By, api.Asker{Who: who, Count: count})
	}
	slices.SortFunc(out.By, func(a, b api.Asker) int { return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Who, b.Who)) })
	return out
}

// makeRoom removes the rarest of some, and the oldest of these. It is called under the lock.
func (m *askings) makeRoom() {
	var rarest buildid.ID
	var least *counted
	n := 0
	for id, one := range m.ids {
		if least == nil || cmp.Or(cmp.Compare(one.count, least.count), one.last.Compare(least.last)) < 0 {
			rarest, least = id, one
		}
		if n++; n == rarestOf {
			break
		}
	}
	delete(m.ids, rarest)
}

// found forgets an identity, which has come.
func (m *askings) found(id buildid.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ids, id)
}

// list returns the identities, those first that were asked for most often.
func (m *askings) list() []api.Missing {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]api.Missing, 0, len(m.ids))
	for id, one := range m.ids {
		out = append(out, api.Missing{ID: id, Name: one.name, Count: one.count, Last: one.last.UTC().Truncate(time.Second)})
	}
	slices.SortFunc(out, func(a, b api.Missing) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), -a.Last.Compare(b.Last), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return out
}

// listMissing answers which identities were asked for and are not there.
func (s *Server) listMissing(w *exchange, r *http.Request, _ caller) error {
	q := r.URL.Query()
	limit, err := numberIn(q.Get("limit"), usualMissing, 1, maxMissPage)
	if err != nil {
		return err
	}
	offset, err := numberIn(q.Get("offset"), 0, 0, maxAsked)
	if err != nil {
		return err
	}
	all := s.missing.list()
	out := api.MissingList{Total: len(all), Since: s.started.UTC().Truncate(time.Second)}
	all = all[min(offset, len(all)):]
	out.Missing = all[:min(limit, len(all))]
	return s.writeJSON(w, out)
}
