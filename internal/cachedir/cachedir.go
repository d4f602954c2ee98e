// Package cachedir keeps files that were made from others in a directory of bounded size.
// Several processes may use the same directory at once. What is in it can be made again:
// it may be removed at any time, and whoever reads a file must know whether it is whole.
package cachedir

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
)

// Dir is a directory with files of one kind.
type Dir struct {
	Path   string
	Suffix string // of the names of all files that are kept in it: ".index"
	// LockSuffix is that of the names of locks that may lie beside them, "" for none.
	LockSuffix string
}

// A File is one that is kept.
type File struct {
	Path string
	Size int64     // in bytes
	Used time.Time // to a day
}

// InUserCache returns where a directory of this name is in the user's cache directory
// ($XDG_CACHE_HOME, ~/.cache), whether it is there or not.
func InUserCache(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "hallmark", name), nil
}

// Name returns the path of the file that is kept for an identity. What tells apart several
// files for one identity is in more.
func (d *Dir) Name(id buildid.ID, more ...string) string {
	name := strings.NewReplacer("/", "_", ":", "-").Replace(id.String())
	return filepath.Join(d.Path, strings.Join(append([]string{name}, more...), "-")+d.Suffix)
}

// Write makes a file, in place of an earlier one, and the directory if need be. It is
// there as a whole or not at all.
func (d *Dir) Write(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(d.Path, 0o777); err != nil {
		return err
	}
	return atomicfile.Write(name, 0o666, write)
}

// usedInterval is how exactly it is known when a file was used.
const usedInterval = 24 * time.Hour

// Used notes that a file is in use, in its time of modification: that of access is not
// kept on many machines.
func Used(name string) {
	info, err := os.Stat(name)
	if now := time.Now(); err == nil && now.Sub(info.ModTime()) > usedInterval {
		_ = os.Chtimes(name, now, now) // a cache of somebody else's
	}
}

// Limit returns how many bytes the files may have: most, or a tenth of the disk if that is
// less.
func (d *Dir) Limit(most int64) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(d.Path, &st) != nil {
		return most
	}
	return min(most, int64(st.Blocks)/10*st.Bsize)
}

// List returns all files, those first that nobody used for longest.
func (d *Dir) List() ([]File, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), d.Suffix) && e.Name()[0] != '.' {
			files = append(files, File{filepath.Join(d.Path, e.Name()), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return a.Used.Compare(b.Used) })
	return files, nil
}

// Prune removes the files that nobody used for longest, until those that stay have at most
// max bytes; but newest, a path, stays. Whoever has a file open keeps it until it is closed.
func (d *Dir) Prune(newest string, max int64) error {
	files, err := d.List()
	total := int64(0)
	for _, f := range files {
		total += f.Size
	}
	for _, f := range files {
		if total <= max {
			break
		}
		if f.Path != newest && os.Remove(f.Path) == nil {
			total -= f.Size
		}
	}
	d.sweep()
	return err
}

// leftoverAge is when a file that a process was writing belongs to nobody any more.
const leftoverAge = 24 * time.Hour

// sweep removes what processes left behind that ended before they were done. A lock
// that is taken is as new as the process that took it.
func (d *Dir) sweep() {
	entries, _ := os.ReadDir(d.Path)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && d.isLeftover(e.Name()) && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(d.Path, e.Name()))
		}
	}
}

// isLeftover reports whether a name is one that atomicfile gives to what it writes, or
// that of a lock.
func (d *Dir) isLeftover(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, d.Suffix+".") || d.LockSuffix != "" && strings.HasSuffix(name, d.LockSuffix)
}
