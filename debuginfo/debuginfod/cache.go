package debuginfod

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/cachedir"
	"hallmark/internal/regular"
)

// The cache has a directory for each build ID with a file "debuginfo" or
// "executable" in it. An empty one says that no server had it when it was written.
// Numbers of seconds are kept in control files that the user may change:
// debuginfod-client-config(7).
const (
	missSeconds   = "cache_miss_s"           // how long an empty file holds
	cleanSeconds  = "cache_clean_interval_s" // how often the cache is cleaned
	unusedSeconds = "max_unused_age_s"       // how long files are kept that nobody reads
)

var defaultSeconds = map[string]int64{missSeconds: 600, cleanSeconds: 86400, unusedSeconds: 604800}

func (c *Client) path(k key) string { return CachePath(c.Dir, k.id, k.file) }

// CachePath returns where a cache directory has a file of a build ID, if it has it. It
// may be empty: then no server had it. Files stay as long as somebody reads them.
func CachePath(dir string, id buildid.ID, file File) string {
	return filepath.Join(dir, id.String(), file.inCache())
}

// Forget removes a file of a build ID from the cache, for those who keep it elsewhere.
func (c *Client) Forget(id buildid.ID, file File) error {
	path := CachePath(c.Dir, id, file)
	if err := cachedir.Check(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(path)) // only if it is empty
	return nil
}

// seconds returns the number in a control file.
func (c *Client) seconds(name string) time.Duration {
	n := defaultSeconds[name]
	if b, err := regular.ReadFile(filepath.Join(c.Dir, name), maxControl); err == nil {
		if m, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			n = min(max(m, 0), mostSeconds)
		}
	}
	return time.Duration(n) * time.Second
}

const (
	maxControl  = 4096           // bytes of a control file
	mostSeconds = 100 * 31556952 // a century
)

// cached reports whether the file is in the cache. If the cache says that no server
// has it, the error is ErrNotFound.
func (c *Client) cached(k key) (found bool, err error) {
	if c.missesInMemory(k) && c.wasMissed(k) {
		return false, ErrNotFound
	}
	path := c.path(k)
	if err := cachedir.Check(filepath.Dir(path)); err != nil {
		return false, err
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	if info.Size() > 0 {
		return true, nil
	}
	if age := time.Since(info.ModTime()); age >= 0 && age < c.seconds(missSeconds) {
		return false, ErrNotFound
	}
	return false, nil
}

// create opens a new file in the directory of a build ID. It removes downloads that were cut
// short there.
func (c *Client) create(k key) (*os.File, error) {
	dir := filepath.Dir(c.path(k))
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return atomicfile.CreateTemp(dir, k.file.inCache())
}

// makeDir makes a directory of the cache, which must be this user's alone.
func makeDir(dir string) error {
	if err := cachedir.Check(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return cachedir.Check(dir) // another may have made it since it was looked at
}

// remember notes that no server has a file. A file that somebody else stored
// meanwhile stays.
func (c *Client) remember(k key) error {
	if k.far {
		return ErrNotFound
	}
	if c.missesInMemory(k) {
		c.miss(k)
		return ErrNotFound
	}
	path := c.path(k)
	now := time.Now()
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err == nil {
		err = f.Close()
	} else if info, statErr := os.Lstat(path); statErr == nil && info.Mode().IsRegular() {
		err = nil
		if info.Size() == 0 {
			err = os.Chtimes(path, now, now)
		}
	}
	if err != nil {
		return err
	}
	return ErrNotFound
}

// maxMisses is how many misses are remembered in memory. A test has fewer.
var maxMisses = 16384

// missKey is the hash of a key: paths of sources are long.
type missKey [sha256.Size]byte

func (k key) hash() missKey { return sha256.Sum256([]byte(k.id.String() + "/" + string(k.file))) }

func (c *Client) missesInMemory(k key) bool { return k.file.isSource() || c.MissTime > 0 }

// miss remembers that no server has a file. Where there is no room another one is forgotten.
func (c *Client) miss(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.misses {
		if len(c.misses) < maxMisses {
			break
		}
		delete(c.misses, other)
	}
	c.misses[k.hash()] = time.Now()
}

// wasMissed reports whether no server had a file of late.
func (c *Client) wasMissed(k key) bool {
	within := c.MissTime
	if within == 0 {
		within = c.seconds(missSeconds)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.misses[k.hash()]
	if ok && time.Since(at) < within {
		return true
	}
	delete(c.misses, k.hash())
	return false
}

// clean removes what nobody has read for long, if it is time to do so again. What
// cannot be removed stays: this is housekeeping, and others do it too.
func (c *Client) clean() {
	control := filepath.Join(c.Dir, cleanSeconds)
	interval := c.seconds(cleanSeconds)
	if cachedir.Check(c.Dir) != nil {
		return
	}
	info, _ := os.Stat(control)
	if info != nil && time.Since(info.ModTime()) < interval {
		return
	}
	if makeDir(c.Dir) != nil {
		return
	}
	// The time of the control file says when it was done last.
	err := atomicfile.Write(control, 0o600, func(w io.Writer) error {
		_, err := w.Write(strconv.AppendInt(nil, int64(interval/time.Second), 10))
		return err
	})
	if err != nil {
		return
	}
	if info != nil { // else the cache is new
		c.removeUnused(time.Now().Add(-c.seconds(unusedSeconds)))
	}
}

func (c *Client) removeUnused(since time.Time) {
	dirs, _ := os.ReadDir(c.Dir)
	for _, dir := range dirs {
		if !dir.IsDir() || !isHex(dir.Name()) {
			continue
		}
		name := filepath.Join(c.Dir, dir.Name())
		files, _ := os.ReadDir(name)
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.Mode().IsRegular() && lastRead(info).Before(since) {
				_ = os.Remove(filepath.Join(name, f.Name()))
			}
		}
		_ = os.Remove(name) // only if it is empty
	}
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

func lastRead(info fs.FileInfo) time.Time {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime()
	}
	read := time.Unix(st.Atim.Unix())
	if read.Before(info.ModTime()) {
		return info.ModTime()
	}
	return read
}
