// Package contentcache remembers the Content of files, so that a large program is hashed once
// and not for each question about it.
//
// A content is remembered for an inode, its size and its times, and only where a change of the
// file is certain to change these. A wrong memory is worse than a slow one: in each case of
// doubt the file is hashed again.
package contentcache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
)

// Of returns the Content of an open file, the zero one for a debug file. It remembers contents
// in this process, and those of large files below the user's cache directory.
//
// Errors are those of [buildid.ReadContent].
func Of(ctx context.Context, f *os.File) (buildid.Content, error) { return shared().Of(ctx, f) }

// Known returns the Content of an open file if it is remembered, and reports whether it is. Not
// one byte of the file is read.
func Known(f *os.File) (buildid.Content, bool) {
	s, err := look(f)
	if err != nil {
		return buildid.Content{}, false
	}
	content, ok := shared().find(s)
	return content, ok && !content.IsZero()
}

// OfMapped is Of for a file that code was executed from, see [buildid.ReadMapped]. It remembers
// nothing of one whose sections are those of a debug file.
func OfMapped(ctx context.Context, f *os.File) (buildid.Content, error) {
	content, err := Of(ctx, f)
	if err != nil || !content.IsZero() {
		return content, err
	}
	ctx, done := begin(ctx, f)
	defer done()
	return buildid.ReadMapped(ctx, f)
}

// Read is [buildid.ReadContext] for an open file. It remembers the contents of files without
// notes, which are their identities.
func Read(ctx context.Context, f *os.File) (buildid.Info, error) {
	info, err := buildid.ReadClaim(f)
	if err != nil || !info.ID.IsZero() {
		return info, err
	}
	return info.AddContent(Of(ctx, f))
}

var shared = sync.OnceValue(func() *Cache {
	dir, err := cachedir.InUserCache("content")
	if err != nil {
		dir = ""
	}
	return New(dir)
})

// A Cache remembers contents. Its methods may be called by several goroutines at once.
type Cache struct {
	disk disk
	mu   sync.Mutex
	// recent has the contents that were asked for last, and older those before them: when
	// recent is full it takes the place of older.
	recent, older map[key]buildid.Content
	read          atomic.Int64 // bytes that were read of files
}

// maxRecent bounds the contents that a process remembers, to twice as many.
const maxRecent = 4096

// New returns a Cache that keeps the contents of large files in a directory; "" for none.
func New(dir string) *Cache {
	return &Cache{disk: newDisk(dir), recent: map[key]buildid.Content{}}
}

// maxAttempts is how often a file is hashed that changes meanwhile. Links and permissions
// change it as well, and not its content.
const maxAttempts = 3

// Of returns the Content of an open file, see the function Of.
func (c *Cache) Of(ctx context.Context, f *os.File) (buildid.Content, error) {
	for range maxAttempts {
		content, err := c.try(ctx, f)
		if !errors.Is(err, buildid.ErrChanging) {
			return content, err
		}
	}
	return buildid.Content{}, &fs.PathError{Op: "hash", Path: f.Name(), Err: buildid.ErrChanging}
}

// try looks for the content of f, or hashes f once.
func (c *Cache) try(ctx context.Context, f *os.File) (buildid.Content, error) {
	before, err := look(f)
	if err != nil {
		return buildid.Content{}, err
	}
	if content, ok := c.find(before); ok {
		return content, nil
	}
	ctx, done := begin(ctx, f)
	defer done()
	isQuiet := before.isQuiet(f, time.Now()) // before the first byte is read: see there
	r := counter{f: f}
	content, err := buildid.ReadContent(ctx, &r)
	c.read.Add(r.n.Load())
	if ctx.Err() != nil {
		return buildid.Content{}, ctx.Err()
	}
	after, lookErr := look(f)
	switch {
	case lookErr != nil:
		return buildid.Content{}, lookErr
	case after.key != before.key:
		return buildid.Content{}, buildid.ErrChanging
	case err == nil && isQuiet:
		c.remember(before, content)
		c.disk.remember(before, f, content, r.n.Load())
	}
	return content, err
}

// find returns the content that is remembered of a file.
func (c *Cache) find(s sight) (buildid.Content, bool) {
	if !s.isNamed {
		return buildid.Content{}, false
	}
	c.mu.Lock()
	content, ok := c.recent[s.key]
	if !ok {
		content, ok = c.older[s.key]
	}
	c.mu.Unlock()
	if !ok {
		content, ok = c.disk.find(s)
	}
	if ok {
		c.remember(s, content)
	}
	return content, ok
}

func (c *Cache) remember(s sight, content buildid.Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) >= maxRecent {
		c.older, c.recent = c.recent, map[key]buildid.Content{}
	}
	c.recent[s.key] = content
}

// counter counts the bytes that are read of a file.
type counter struct {
	f *os.File
	n atomic.Int64
}

func (c *counter) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.f.ReadAt(b, at)
	c.n.Add(int64(n))
	return n, err
}

// Stat is for the size of files without code.
func (c *counter) Stat() (fs.FileInfo, error) { return c.f.Stat() }
