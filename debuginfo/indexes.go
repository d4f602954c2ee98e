package debuginfo

import (
	"errors"
	"io"
	"io/fs"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
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
	files, err := c.files()
	if err != nil {
		return "", err
	}
	return files.Name(id), nil
}

func (c *Indexes) files() (*cachedir.Dir, error) {
	files := &cachedir.Dir{Path: c.Dir, Suffix: suffix, LockSuffix: lockSuffix}
	var err error
	if c.Dir == "" {
		files.Path, err = cachedir.InUserCache("index")
	}
	return files, err
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
	cachedir.Used(name)
	return x, nil
}

// Store keeps an index of an identity, in place of an earlier one, and returns its
// path. It is there as a whole or not at all.
func (c *Indexes) Store(id buildid.ID, x *symbol.Index) (string, error) {
	files, err := c.files()
	if err != nil {
		return "", err
	}
	name := files.Name(id)
	err = files.Write(name, func(w io.Writer) error {
		_, err := w.Write(x.Bytes())
		return err
	})
	if err != nil {
		return "", err
	}
	most := c.MaxSize
	if most <= 0 {
		most = files.Limit(DefaultMaxSize)
	}
	_ = files.Prune(name, most) // what was stored is there
	return name, nil
}

// A Kept is an index that is kept.
type Kept = cachedir.File

// List returns all indexes, those first that nobody used for longest.
func (c *Indexes) List() ([]Kept, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	return files.List()
}

// Prune removes the indexes that nobody used for longest, until those that stay have at
// most max bytes. Whoever has one of them open keeps it until it is closed.
func (c *Indexes) Prune(max int64) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	return files.Prune("", max)
}
