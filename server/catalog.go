package server

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/buildid"
	"hallmark/server/store"
)

// catalog is what /metadata searches: which files have which names. Manifests are the truth,
// and this is a copy of what it needs of them.
type catalog struct {
	mu       sync.RWMutex
	entries  map[buildid.ID]catalogued
	ordered  []buildid.ID // by their text; nil where an identity came or went
	complete bool         // all manifests have been read

	generation atomic.Int64 // counts changes of files that are served
}

// catalogued is what is known of an identity.
type catalogued struct {
	text    string // of the identity
	names   []entry
	symbols store.Symbols
	index   store.IndexName
	dwz     store.DwzFile // that it is for others
	files   int
}

// An entry is one name of a file.
type entry struct {
	Type    string `json:"type"`
	BuildID string `json:"buildid"`
	File    string `json:"file"`
	Archive string `json:"archive,omitempty"`
}

func newCatalog() *catalog { return &catalog{entries: map[buildid.ID]catalogued{}} }

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
	old, ok := c.entries[m.ID]
	if len(m.Files) == 0 {
		if ok {
			c.generation.Add(1)
			delete(c.entries, m.ID)
			c.ordered = nil
		}
		return
	}
	now := catalogued{m.ID.String(), all, m.Symbols(), m.IndexName(), m.DwzFile(), len(m.Files)}
	if !ok {
		c.ordered = nil
	}
	if old.index != now.index || old.dwz != now.dwz {
		c.generation.Add(1)
	}
	c.entries[m.ID] = now
}

func (c *catalog) setComplete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
}

func (c *catalog) isComplete() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.complete
}

func (c *catalog) len() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return int64(len(c.entries))
}

// order returns all identities, by their text. Nobody may change the list.
func (c *catalog) order() []buildid.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ordered == nil {
		c.ordered = slices.SortedFunc(maps.Keys(c.entries), func(a, b buildid.ID) int {
			return cmp.Compare(c.entries[a].text, c.entries[b].text)
		})
	}
	return c.ordered
}

// Bounds of searches by name. Comparing a name with a pattern takes as long as both are, and longer with stars.
const (
	maxResults = 10000
	maxPattern = 1000            // bytes
	searchTime = 2 * time.Second // then the answer has what was found, and is not complete
	searchStep = 16              // identities, between which others may change the catalogue
)

// search returns what has a name, or the identity, and whether that is all there is.
func (c *catalog) search(ctx context.Context, key, value string) (found []entry, complete bool) {
	if key == "buildid" {
		c.mu.RLock()
		defer c.mu.RUnlock()
		id, err := buildid.Parse(value)
		if err != nil {
			return nil, true
		}
		return c.entries[id].names, c.complete
	}
	is := func(name string) bool { return name == value }
	if key == "glob" {
		is = func(name string) bool { ok, _ := path.Match(value, name); return ok }
	}
	begun := time.Now()
	for some := range slices.Chunk(c.order(), searchStep) {
		if ctx.Err() != nil || time.Since(begun) > searchTime {
			return found, false
		}
		for _, names := range c.namesOf(some) {
			for _, e := range names {
				if !is(e.File) {
					continue
				}
				if len(found) == maxResults {
					return found, false
				}
				found = append(found, e)
			}
		}
	}
	return found, c.isComplete()
}

// namesOf returns the names of identities.
func (c *catalog) namesOf(ids []buildid.ID) (names [][]entry) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range ids {
		names = append(names, c.entries[id].names)
	}
	return names
}
