package server

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sync"

	"hallmark/buildid"
	"hallmark/server/store"
)

// catalog is what /metadata searches: which files have which names. Manifests are the truth,
// and this is a copy of what it needs of them.
type catalog struct {
	mu       sync.RWMutex
	entries  map[buildid.ID][]entry
	complete bool // all manifests have been read
}

// An entry is one name of a file.
type entry struct {
	Type    string `json:"type"`
	BuildID string `json:"buildid"`
	File    string `json:"file"`
	Archive string `json:"archive,omitempty"`
}

func newCatalog() *catalog { return &catalog{entries: map[buildid.ID][]entry{}} }

// note takes the names out of a manifest, which has no files where the identity was removed.
func (c *catalog) note(m *store.Manifest) {
	var all []entry
	for kind, f := range map[string]*store.File{"executable": m.Executable(), "debuginfo": m.DebugInfo()} {
		if f == nil {
			continue
		}
		for _, o := range f.Origins {
			e := entry{kind, m.ID.String(), o.Path, o.Archive}
			if e.File != "" && !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(-cmp.Compare(a.Type, b.Type), cmp.Compare(a.File, b.File), cmp.Compare(a.Archive, b.Archive))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(m.Files) == 0 {
		delete(c.entries, m.ID)
		return
	}
	c.entries[m.ID] = all
}

func (c *catalog) setComplete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
}

func (c *catalog) len() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return int64(len(c.entries))
}

// maxResults of a search.
const maxResults = 10000

// search returns what has a name, or the identity, and whether that is all there is.
func (c *catalog) search(key, value string) (found []entry, complete bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if key == "buildid" {
		id, err := buildid.Parse(value)
		if err != nil {
			return nil, true
		}
		return c.entries[id], c.complete
	}
	is := func(name string) bool { return name == value }
	if key == "glob" {
		is = func(name string) bool { ok, _ := path.Match(value, name); return ok }
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.entries), func(a, b buildid.ID) int { return cmp.Compare(a.String(), b.String()) }) {
		for _, e := range c.entries[id] {
			if !is(e.File) {
				continue
			}
			if len(found) == maxResults {
				return found, false
			}
			found = append(found, e)
		}
	}
	return found, c.complete
}
