package debuginfo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/symbol"
)

// Indexes are the indexes that were made on this machine, one for each identity. The
// zero value keeps them where the user's caches are. Several processes may use the same
// directory at once.
type Indexes struct {
	// Dir is the directory they are in; "" means hallmark/index in the user's cache
	// directory ($XDG_CACHE_HOME, ~/.cache).
	Dir string

	// MaxSize is how many bytes all of them may have: when more are stored, those that
	// nobody used for longest go. 0 means DefaultMaxSize, or a tenth of the disk if
	// that is less.
	MaxSize int64
}

// DefaultMaxSize of all indexes together, in bytes.
const DefaultMaxSize = 5 << 30

// suffix of the names of indexes.
const suffix = ".index"

// Path returns where the index of an identity is or would be.
func (c *Indexes) Path(id buildid.ID) (string, error) {
	dir, err := c.dir()
	if err != nil {
		return "", err
	}
	name := strings.NewReplacer("/", "_", ":", "-").Replace(id.String())
	return filepath.Join(dir, name+suffix), nil
}

func (c *Indexes) dir() (string, error) {
	if c.Dir != "" {
		return c.Dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "hallmark", "index"), nil
}

// Open returns the index of an identity, for the caller to close. If there is none
// the error wraps fs.ErrNotExist; one that is damaged, of another version or of
// another identity counts as none.
func (c *Indexes) Open(id buildid.ID) (*symbol.Index, error) {
	name, err := c.Path(id)
	if err != nil {
		return nil, err
	}
	x, err := symbol.OpenIndex(name)
	var damaged *symbol.FormatError
	switch {
	case errors.As(err, &damaged):
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case err != nil:
		return nil, err
	case x.Identity() != id.String():
		x.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	used(name)
	return x, nil
}

// usedInterval is how exactly it is known when an index was used.
const usedInterval = 24 * time.Hour

// used notes that an index is in use, in its time of modification: that of access is
// not kept on many machines.
func used(name string) {
	info, err := os.Stat(name)
	if now := time.Now(); err == nil && now.Sub(info.ModTime()) > usedInterval {
		_ = os.Chtimes(name, now, now) // a cache of somebody else's
	}
}

// Store keeps an index of an identity, in place of an earlier one, and returns its
// path. It is there as a whole or not at all.
func (c *Indexes) Store(id buildid.ID, x *symbol.Index) (string, error) {
	name, err := c.Path(id)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return "", err
	}
	err = atomicfile.Write(name, 0o666, func(w io.Writer) error {
		_, err := w.Write(x.Bytes())
		return err
	})
	if err != nil {
		return "", err
	}
	_ = c.prune(filepath.Base(name), c.maxSize()) // what was stored is there
	return name, nil
}

// maxSize returns how many bytes all indexes may have.
func (c *Indexes) maxSize() int64 {
	if c.MaxSize > 0 {
		return c.MaxSize
	}
	var st syscall.Statfs_t
	dir, err := c.dir()
	if err != nil || syscall.Statfs(dir, &st) != nil {
		return DefaultMaxSize
	}
	return min(DefaultMaxSize, int64(st.Blocks)/10*st.Bsize)
}

// A Kept is an index that is kept.
type Kept struct {
	Path string
	Size int64     // in bytes
	Used time.Time // to a day
}

// List returns all indexes, those first that nobody used for longest.
func (c *Indexes) List() ([]Kept, error) {
	dir, err := c.dir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var kept []Kept
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && isIndexName(e.Name()) {
			kept = append(kept, Kept{filepath.Join(dir, e.Name()), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(kept, func(a, b Kept) int { return a.Used.Compare(b.Used) })
	return kept, nil
}

func isIndexName(name string) bool { return strings.HasSuffix(name, suffix) && name[0] != '.' }

// Prune removes the indexes that nobody used for longest, until those that stay have at
// most max bytes. Whoever has one of them open keeps it until it is closed.
func (c *Indexes) Prune(max int64) error {
	return c.prune("", max)
}

// prune does so, but keeps the newest.
func (c *Indexes) prune(newest string, max int64) error {
	kept, err := c.List()
	total := int64(0)
	for _, k := range kept {
		total += k.Size
	}
	for _, k := range kept {
		if total <= max {
			break
		}
		if filepath.Base(k.Path) != newest && os.Remove(k.Path) == nil {
			total -= k.Size
		}
	}
	c.sweep()
	return err
}

// leftoverAge is when a file that a process was writing belongs to nobody any more.
const leftoverAge = 24 * time.Hour

// sweep removes what processes left behind that ended before they were done. A lock
// that is taken is as new as the process that took it.
func (c *Indexes) sweep() {
	dir, err := c.dir()
	if err != nil {
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		leftover := strings.HasPrefix(e.Name(), ".") && strings.Contains(e.Name(), suffix+".") || strings.HasSuffix(e.Name(), lockSuffix)
		if info, err := e.Info(); leftover && err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
