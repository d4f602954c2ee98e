package server

import (
	"context"
	"path"
	"time"

	"hallmark/buildid"
	"hallmark/server/store"
)

// An entry is one name of a file.
type entry struct {
	Type    string `json:"type"`
	BuildID string `json:"buildid"`
	File    string `json:"file"`
	Archive string `json:"archive,omitempty"`
}

// size returns how many bytes its names have.
func (e *entry) size() int { return len(e.File) + len(e.Archive) }

// entriesOf returns the names of an identity that pass a test.
func entriesOf(e *store.Entry, is func(name string) bool) (found []entry) {
	for _, n := range e.Names {
		if !is(n.File) {
			continue
		}
		kind := "executable"
		if n.Debug {
			kind = "debuginfo"
		}
		found = append(found, entry{kind, e.ID.String(), n.File, n.Archive})
	}
	return found
}

// Bounds of searches by name. Comparing a name with a pattern takes as long as both are, and longer with stars.
const (
	maxResults    = 10000
	maxResultText = 4 << 20         // bytes of names in an answer, which has six times as many where all are escaped
	maxPattern    = 1000            // bytes
	searchTime    = 2 * time.Second // then the answer has what was found, and is not complete
)

// searchNames returns what has a name, or the identity, and whether that is all there is.
func searchNames(ctx context.Context, c *store.Catalog, key, value string) (found []entry, complete bool) {
	is, with := func(name string) bool { return name == value }, value
	switch key {
	case "buildid":
		id, err := buildid.Parse(value)
		if err != nil {
			return nil, true
		}
		e, _ := c.Entry(id)
		return entriesOf(&e, func(string) bool { return true }), c.Complete() && !e.Cut
	case "glob":
		is, with = func(name string) bool { ok, _ := path.Match(value, name); return ok }, ""
	}
	begun, size := time.Now(), 0
	complete = c.Complete()
	for e := range c.All(with) {
		if ctx.Err() != nil || time.Since(begun) > searchTime {
			return found, false
		}
		for _, one := range entriesOf(&e, is) {
			if size += one.size(); len(found) >= maxResults || size > maxResultText {
				return found, false
			}
			found = append(found, one)
		}
		complete = complete && !e.Cut
	}
	return found, complete
}
