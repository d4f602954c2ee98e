package contentcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
	"hallmark/internal/trust"
)

// disk keeps contents in files, one for each. A file has three lines of text:
//
//	hallmark content 2 boot=… dev=… disk=… mount=… …
//	8bb18077fa415b4d1306d85709708bc9622c9d24
//	SHA-256 of the lines above
//
// The first is the key, and the name of the file is a hash of it. Numbers of disks and of
// mounts belong to a boot.
//
// Nobody but this user and root can write these files, and only the contents of files that
// nobody else can have written are kept.
type disk struct {
	dir  *cachedir.Dir // nil for none
	boot string
}

const (
	maxDisk   = 4 << 20 // bytes of all entries
	maxEntry  = 1024    // bytes of one
	leastKept = 2 << 20 // bytes that had to be read for a content, for it to be kept
)

func newDisk(dir string) disk {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if dir == "" || err != nil {
		return disk{}
	}
	return disk{&cachedir.Dir{Path: dir, Suffix: ".content"}, strings.TrimSpace(string(boot))}
}

// keeps reports whether there may be an entry for a file.
func (d disk) keeps(s sight) bool {
	return d.dir != nil && s.isNamed && s.disk != 0 && s.mount != 0 && s.size >= leastKept
}

// title is the first line of the entry of a file.
func (d disk) title(k key) string {
	return fmt.Sprintf("hallmark content 2 boot=%s dev=%x disk=%d mount=%d subvolume=%d inode=%d generation=%d born=%v size=%d mtime=%v ctime=%v\n",
		d.boot, k.dev, k.disk, k.mount, k.subvolume, k.inode, k.generation, k.born, k.size, k.mtime, k.ctime)
}

// name returns the path of the entry with this title.
func (d disk) name(title string) string {
	sum := sha256.Sum256([]byte(title))
	return filepath.Join(d.dir.Path, hex.EncodeToString(sum[:16])+d.dir.Suffix)
}

// find returns the content that is kept of a file. An entry that is not whole is none.
func (d disk) find(s sight) (buildid.Content, bool) {
	if !d.keeps(s) {
		return buildid.Content{}, false
	}
	title := d.title(s.key)
	name := d.name(title)
	f, err := d.dir.Open(name)
	if err != nil {
		return buildid.Content{}, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry))
	if err != nil {
		return buildid.Content{}, false
	}
	digits, _ := strings.CutPrefix(string(b), title)
	digits, _, _ = strings.Cut(digits, "\n")
	content, err := buildid.ParseContent(digits)
	if err != nil || string(b) != entry(title, content) {
		d.dir.Discard(name, errDamaged)
		return buildid.Content{}, false
	}
	cachedir.Used(f)
	return content, true
}

var errDamaged = errors.New("damaged entry of a content")

// entry returns the text of an entry.
func entry(title string, c buildid.Content) string {
	text := title + c.String() + "\n"
	return fmt.Sprintf("%s%x\n", text, sha256.Sum256([]byte(text)))
}

// remember keeps the content of a file that took so many bytes to read, if that is worth it
// and nobody else can have written the file. That an entry cannot be written costs time, the
// next time.
func (d disk) remember(s sight, f *os.File, c buildid.Content, bytes int64) {
	if bytes < leastKept || c.IsZero() || !d.keeps(s) || trust.LevelOf(f, "") == trust.Others {
		return
	}
	title := d.title(s.key)
	name, text := d.name(title), entry(title, c)
	err := d.dir.WriteFast(name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if most := d.dir.Limit(maxDisk); err == nil && cachedir.IsFull(int64(len(text)), most) {
		_ = d.dir.Prune(name, most) // a cache may be larger for once
	}
}
