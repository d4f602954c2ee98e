package store

import (
	"crypto/rand"
	"fmt"
	"path"
	"time"

	"hallmark/server/blob"
)

// Times of the collection of garbage: see Store.Collect.
const (
	// grace is how long an object that nothing lists is kept, once as a new one and once when it is
	// marked as dead.
	grace = 24 * time.Hour
	// listTime is in what time what was stored has to be listed.
	listTime = 6 * time.Hour
)

func deadKey(name string) string { return "dead/" + name[:2] + "/" + name }

// gone is the content of the mark of an object that was removed. Before that the mark is empty.
const gone = "gone"

// objectOf returns the name of the object that a key is of, or that the key of a mark is of.
func objectOf(key string) string { return path.Base(key) }

// newLife returns a name that nothing had before.
func newLife() string { return rand.Text() }

// placed is an object that may be listed, for a time.
type placed struct {
	name  string
	since time.Time // before its mark was looked for
	now   func() time.Time
}

// key returns what File.Key says of it.
func (p placed) key(spool *Spool) string {
	if p.name == spool.Object {
		return ""
	}
	return p.name
}

// inTime returns an error if the object must not be listed any more.
func (p placed) inTime() error {
	now := p.now()
	// Clocks stand still in a machine that is suspended, or are set back: one of the two counts on.
	if now.Sub(p.since) > listTime || now.Round(0).Sub(p.since.Round(0)) > listTime {
		return fmt.Errorf("%w: more than %v went by before the file could be listed", blob.ErrUnavailable, listTime)
	}
	return nil
}
