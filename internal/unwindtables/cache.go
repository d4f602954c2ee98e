package unwindtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/cachedir"
	"hallmark/unwind"
)

// Cache keeps unwind tables from one recording to the next, by all that is known of the
// content of their file without reading it. A file that was stripped has the same identity,
// and may have less to say; a builder may give all its versions one identity; so size, a hash
// of head and tail and the time of the last change have to be the same as well. That time can
// be set, and packages set it; so the inode and the time of its last change, which the kernel
// alone sets, have to be the same, too. Containers that share a layer share its inodes, and
// these tables; a copy of a file gets a table of its own.
//
// An attacker who wants others to see wrong frames can make a file that has all of these in common
// with one of theirs. So a table is kept only of a file that nobody else can have written: see
// trust.TrustedFile. It is used for the files of others as well: that is for their stacks only.
type Cache struct {
	dir  *cachedir.Dir // nil for no cache
	most int64         // bytes that all of them may have
}

// maxTableCache is more than the tables of all programs of a machine that is not a
// developer's.
const maxTableCache = 256 << 20

// NewCache returns the cache in a directory of caches, "" for none. Where others can
// put files there is none either: they would be believed.
func NewCache(dir string) Cache {
	path := filepath.Join(dir, "unwind")
	if cachedir.Check(path) != nil {
		return Cache{}
	}
	return Cache{&cachedir.Dir{Path: path, Suffix: tableVersion(unwind.Version) + tableSuffix}, maxTableCache}
}

const tableSuffix = ".unwind"

// tableVersion is in the names of the tables of a version, so that several versions of this
// program do not write over each other's.
func tableVersion(n int) string { return ".v" + strconv.Itoa(n) }

// tableKey names the content of a file.
type tableKey struct {
	id    buildid.ID
	size  int64      // in bytes
	hash  buildid.ID // of head and tail
	mtime bpf.Time
	inode uint64
	ctime bpf.Time
}

// keeps reports whether tables of files with this key are kept.
func (c Cache) keeps(k tableKey) bool { return k.size > 0 && c.names(k.id) }

// names reports whether tables of files with this identity are kept.
func (c Cache) names(id buildid.ID) bool {
	return c.dir != nil && !id.IsZero() && id.Kind() != buildid.HTL
}

// A kept table has a header before it: what it is, the version of the way in which it was
// built, and what reports whether it is whole.
const (
	tableCacheMagic  = 0x43575548 // "HUWC"
	tableCacheHeader = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is the error of a kept table that is not whole, or of another version.
var errDamaged = errors.New("damaged table in the cache")

// load returns the table of a file. If none is kept the error is that of a file which is
// not there; a damaged one is errDamaged, and goes.
func (c Cache) load(k tableKey) (*unwind.Table, error) {
	if !c.keeps(k) {
		return nil, os.ErrNotExist
	}
	t, err := c.read(k)
	if errors.Is(err, errDamaged) && !errors.Is(err, cachedir.ErrNotOwn) {
		c.dir.Discard(c.name(k), err)
	}
	return t, err
}

func (c Cache) read(k tableKey) (*unwind.Table, error) {
	f, err := c.dir.Open(c.name(k))
	if errors.Is(err, cachedir.ErrNotOwn) {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readWhole(f, maxTableCache)
	if err != nil {
		return nil, err
	}
	order := binary.LittleEndian
	if len(b) < tableCacheHeader || order.Uint32(b) != tableCacheMagic || order.Uint32(b[4:]) != unwind.Version ||
		order.Uint32(b[8:]) != crc32.Checksum(b[tableCacheHeader:], castagnoli) {
		return nil, errDamaged
	}
	t, err := unwind.Parse(b[tableCacheHeader:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	cachedir.Used(f)
	return t, nil
}

// readWhole reads a file that has at most so many bytes; any other is errDamaged.
func readWhole(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil || info.Size() > most {
		return nil, errDamaged
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return b, nil
}

// store keeps the table of a file.
func (c Cache) store(k tableKey, t *unwind.Table) error {
	if !c.keeps(k) {
		return nil
	}
	header := make([]byte, tableCacheHeader)
	order := binary.LittleEndian
	order.PutUint32(header, tableCacheMagic)
	order.PutUint32(header[4:], unwind.Version)
	order.PutUint32(header[8:], crc32.Checksum(t.Bytes(), castagnoli))
	return c.dir.WriteFast(c.name(k), func(w io.Writer) error {
		_, err := w.Write(header)
		if err == nil {
			_, err = w.Write(t.Bytes())
		}
		return err
	})
}

// keep stores the table of a file, and returns how many bytes it takes. A table that cannot be kept, and one that
// there is nothing to keep of, is built again the next time.
func (c Cache) keep(k tableKey, t *unwind.Table) int64 {
	if t == emptyTable || !c.keeps(k) || c.store(k, t) != nil {
		return 0
	}
	return int64(tableCacheHeader + len(t.Bytes()))
}

func (c Cache) name(k tableKey) string {
	hash := strings.TrimPrefix(k.hash.String(), "htl:")
	changed := fmt.Sprintf("%x.%x", k.mtime.Sec, k.mtime.Nsec)
	inode := fmt.Sprintf("%x.%x.%x", k.inode, k.ctime.Sec, k.ctime.Nsec)
	return c.dir.Name(k.id, strconv.FormatInt(k.size, 10), hash, changed, inode)
}

// pruneAfter makes room where tables of so many bytes were stored, if it is time for it.
func (c Cache) pruneAfter(stored int64) {
	if stored > 0 && c.dir != nil && cachedir.IsFull(stored, c.dir.Limit(c.most)) {
		c.prune()
	}
}

// prune makes room. Tables of earlier versions of unwind.Build go first.
func (c Cache) prune() {
	if c.dir == nil {
		return
	}
	any := cachedir.Dir{Path: c.dir.Path, Suffix: tableSuffix}
	files, _ := any.List() // what is not seen now is another time
	var older []string
	for _, f := range files {
		if isOlderTable(f.Path) {
			older = append(older, f.Path)
		}
	}
	any.Remove(older...)
	_ = any.Prune("", any.Limit(c.most)) // a cache may be larger for once
}

// isOlderTable reports whether a file has a table of an earlier version: the first one
// had none in its name.
func isOlderTable(name string) bool {
	number, ok := strings.CutPrefix(filepath.Ext(strings.TrimSuffix(name, tableSuffix)), ".v")
	n, err := strconv.Atoi(number)
	return !ok || err != nil || n < unwind.Version
}
