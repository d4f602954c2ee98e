package debuginfo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/symbol"
)

// Indexes are the indexes that were made on this machine, one for each identity. The
// zero value keeps them where the user's caches are.
type Indexes struct {
	// Dir is the directory they are in; "" means hallmark/index in the user's cache
	// directory ($XDG_CACHE_HOME, ~/.cache).
	Dir string
}

// Path returns where the index of an identity is or would be.
func (c *Indexes) Path(id buildid.ID) (string, error) {
	dir := c.Dir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "hallmark", "index")
	}
	name := strings.NewReplacer("/", "_", ":", "-").Replace(id.String())
	return filepath.Join(dir, name+".index"), nil
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
	return x, nil
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
	return name, atomicfile.Write(name, 0o666, func(w io.Writer) error {
		_, err := w.Write(x.Bytes())
		return err
	})
}
