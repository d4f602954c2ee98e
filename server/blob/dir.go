package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Dir is a Store in a directory of a local file system. Keys are the paths of its files.
//
// An object is written under a name of its own in tmp, flushed to the disk, and takes its name
// by a link, which fails where there is one, or by a rename under a lock of the kernel, which
// ends with its process. So a process that is killed leaves a file in tmp, and no more.
type Dir struct {
	root *os.Root
	name string
}

// Directories of a Dir that hold no objects.
const (
	tmpDir  = "tmp"
	lockDir = "locks"
)

// DirNames returns the names of the directories that each opened Dir has besides its objects.
func DirNames() []string { return []string{tmpDir, lockDir} }

// tmpAge is how long a file in tmp may be in the writing.
const tmpAge = 24 * time.Hour

// OpenDir opens the store in a directory, which it makes if need be. Files that killed processes left
// there a day ago are removed.
func OpenDir(name string) (*Dir, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	d := &Dir{root, name}
	for _, sub := range []string{tmpDir, lockDir} {
		if err := root.MkdirAll(sub, 0o700); err != nil {
			root.Close()
			return nil, err
		}
	}
	d.sweep(time.Now().Add(-tmpAge))
	return d, nil
}

// Close gives the directory back. No call may follow.
func (d *Dir) Close() error { return d.root.Close() }

// String returns the name of the directory.
func (d *Dir) String() string { return d.name }

// sweep removes what was left in tmp before a time.
func (d *Dir) sweep(before time.Time) {
	dir, err := d.root.Open(tmpDir)
	if err != nil {
		return
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(-1)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = d.root.Remove(path.Join(tmpDir, e.Name()))
		}
	}
}

// isKey returns an error for keys that a Dir does not store.
func isKey(key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(key, "/"); first == tmpDir || first == lockDir {
		return fmt.Errorf("%s: %w", key, ErrKey)
	}
	return nil
}

// failed returns an error of a file as one of stores.
func failed(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s: %w", key, ErrNotExist)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w", key, ErrExist)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrFull // whatever the key is
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ESTALE):
		return fmt.Errorf("%s: %w: %w", key, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// absent returns an error of a file that was looked for. In a directory that somebody removed or emptied no object is
// missing: nothing is known of any.
func (d *Dir) absent(key string, err error) error {
	if err = failed(key, err); !errors.Is(err, ErrNotExist) {
		return err
	}
	if _, gone := d.root.Lstat(tmpDir); gone != nil {
		return fmt.Errorf("%w: the directory %s was removed or emptied", ErrUnavailable, d.name)
	}
	return err
}

func (d *Dir) open(key string) (*os.File, Info, error) {
	if err := isKey(key); err != nil {
		return nil, Info{}, err
	}
	f, err := d.root.Open(key)
	if err != nil {
		return nil, Info{}, d.absent(key, err)
	}
	info, err := infoOf(key, f)
	if err != nil {
		f.Close()
		return nil, Info{}, failed(key, err)
	}
	return f, info, nil
}

// infoOf describes an open object. The tag of an object that may be replaced is a hash of its
// content, so that it holds whatever numbers the file system gives to files.
func infoOf(key string, f *os.File) (Info, error) {
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	if !st.Mode().IsRegular() {
		return Info{}, fs.ErrNotExist
	}
	info := Info{Key: key, Size: st.Size(), Stamp: stampOf(st), Modified: st.ModTime()}
	if st.Size() <= MaxSwap {
		b := make([]byte, st.Size())
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			return Info{}, err
		}
		info.Tag = tagOf(b)
		return info, nil
	}
	info.Tag = info.Stamp
	return info, nil
}

// stampOf returns the stamp of a file. Clocks of file systems may stand still for a few milliseconds, but a file that takes
// the place of another one has another number.
func stampOf(st fs.FileInfo) string {
	return fmt.Sprint(st.Sys().(*syscall.Stat_t).Ino, st.Size(), st.ModTime().UnixNano())
}

func tagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Open opens an object as a file.
func (d *Dir) Open(_ context.Context, key string) (ReadAtCloser, Info, error) {
	f, info, err := d.open(key)
	if err != nil {
		return nil, Info{}, err
	}
	return f, info, nil
}

type section struct {
	io.Reader
	io.Closer
}

// Get implements Store.
func (d *Dir) Get(_ context.Context, key string, off, n int64) (io.ReadCloser, Info, error) {
	f, info, err := d.open(key)
	if err != nil {
		return nil, Info{}, err
	}
	if err := checkRange(info, off); err != nil {
		f.Close()
		return nil, Info{}, err
	}
	if n < 0 || n > info.Size-off {
		n = info.Size - off
	}
	return section{io.NewSectionReader(f, off, n), f}, info, nil
}

func checkRange(info Info, off int64) error {
	if off < 0 || off > info.Size || off == info.Size && off > 0 {
		return fmt.Errorf("%s: no byte %d in %d", info.Key, off, info.Size)
	}
	return nil
}

// Head implements Store.
func (d *Dir) Head(_ context.Context, key string) (Info, error) {
	f, info, err := d.open(key)
	if err != nil {
		return Info{}, err
	}
	return info, f.Close()
}

// PutIfAbsent implements Store.
func (d *Dir) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (Info, error) {
	if err := isKey(key); err != nil {
		return Info{}, err
	}
	if _, err := d.root.Lstat(key); err == nil {
		return Info{}, fmt.Errorf("%s: %w", key, ErrExist)
	}
	return d.put(ctx, key, r, size, func(tmp string) error { return d.root.Link(tmp, key) })
}

// put writes an object under a name of its own, and has it published.
func (d *Dir) put(ctx context.Context, key string, r io.Reader, size int64, publish func(tmp string) error) (Info, error) {
	tmp := path.Join(tmpDir, rand.Text())
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return Info{}, d.absent(key, err)
	}
	defer d.root.Remove(tmp)
	defer f.Close()
	if err := fill(ctx, f, r, size); err != nil {
		return Info{}, failed(key, err)
	}
	info, err := infoOf(key, f)
	if err != nil {
		return Info{}, failed(key, err)
	}
	for range publishTries { // Delete may remove the directory meanwhile, which was empty
		if err = d.root.MkdirAll(path.Dir(key), 0o700); errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			// One that was there when it was made was gone when it was opened. It says nothing of the object.
			err = fmt.Errorf("%w: directories come and go: %v", ErrUnavailable, err)
			continue
		}
		if err == nil {
			err = publish(tmp)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		err = d.sync(path.Dir(key))
	}
	return info, failed(key, err)
}

// publishTries is how often an object is tried to be given its name.
const publishTries = 100

// fill writes exactly size bytes of r to a file, and flushes it to the disk.
func fill(ctx context.Context, f *os.File, r io.Reader, size int64) error {
	n, err := io.Copy(f, io.LimitReader(&untilDone{ctx, r}, size))
	if err != nil {
		return err
	}
	if n < size {
		return fmt.Errorf("%d bytes of %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	var more [1]byte
	if n, _ := r.Read(more[:]); n > 0 {
		return fmt.Errorf("more than the %d bytes that were announced", size)
	}
	return f.Sync()
}

// untilDone reads until a context is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// sync flushes a directory and those above it, which may be new.
func (d *Dir) sync(dir string) error {
	for {
		f, err := d.root.Open(dir)
		if err == nil {
			err = f.Sync()
			f.Close()
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil // somebody removed the object again, and the directory with it
		}
		if err != nil || dir == "." {
			return err
		}
		dir = path.Dir(dir)
	}
}

// lock waits until no other process or goroutine changes the object.
func (d *Dir) lock(key string) (unlock func(), err error) {
	h := fnv.New32a()
	h.Write([]byte(key))
	f, err := d.root.OpenFile(path.Join(lockDir, fmt.Sprintf("%02x", h.Sum32()&0xff)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
	}
}

// PutIfMatch implements Store.
func (d *Dir) PutIfMatch(ctx context.Context, key, tag string, data []byte) (Info, error) {
	if len(data) > MaxSwap {
		return Info{}, fmt.Errorf("%s: %d bytes are more than %d", key, len(data), MaxSwap)
	}
	return d.ReplaceIfMatch(ctx, key, tag, strings.NewReader(string(data)), int64(len(data)))
}

// ReplaceIfMatch implements Replacer.
func (d *Dir) ReplaceIfMatch(ctx context.Context, key, tag string, r io.Reader, size int64) (Info, error) {
	if err := isKey(key); err != nil {
		return Info{}, err
	}
	return d.put(ctx, key, r, size, func(tmp string) error {
		unlock, err := d.lock(key)
		if err != nil {
			return err
		}
		defer unlock()
		old, err := d.Head(ctx, key)
		if errors.Is(err, ErrNotExist) || err == nil && old.Tag != tag {
			return ErrChanged
		}
		if err != nil {
			return err
		}
		return d.root.Rename(tmp, key)
	})
}

// Delete implements Store.
func (d *Dir) Delete(_ context.Context, key string) error {
	if err := isKey(key); err != nil {
		return err
	}
	unlock, err := d.lock(key)
	if err != nil {
		return failed(key, err)
	}
	defer unlock()
	return d.remove(key)
}

// DeleteIfMatch implements ConditionalDeleter.
func (d *Dir) DeleteIfMatch(ctx context.Context, key, tag string) error {
	if err := isKey(key); err != nil {
		return err
	}
	unlock, err := d.lock(key)
	if err != nil {
		return failed(key, err)
	}
	defer unlock()
	old, err := d.Head(ctx, key)
	if errors.Is(err, ErrNotExist) || err == nil && old.Tag != tag {
		return fmt.Errorf("%s: %w", key, ErrChanged)
	}
	if err != nil {
		return err
	}
	return d.remove(key)
}

// remove removes an object, and the directories above it that are empty then. It is called under the
// lock of the object.
func (d *Dir) remove(key string) error {
	if st, err := d.root.Lstat(key); err == nil && st.IsDir() {
		return nil
	}
	if err := d.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return failed(key, err)
	}
	for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
		if d.root.Remove(dir) != nil { // another object is there
			break
		}
	}
	return nil
}

// List implements Store. It leaves out the tags.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		d.list(ctx, ".", prefix, yield)
	}
}

// list goes through a directory and reports whether to go on.
func (d *Dir) list(ctx context.Context, dir, prefix string, yield func(Info, error) bool) bool {
	entries, err := d.entries(dir)
	if dir == "." && err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == tmpDir }) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return yield(Info{}, d.absent(dir, err))
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return yield(Info{}, err)
		}
		key := path.Join(dir, e.Name())
		if dir == "." && (key == tmpDir || key == lockDir) {
			continue
		}
		switch {
		case e.IsDir() && (strings.HasPrefix(key+"/", prefix) || strings.HasPrefix(prefix, key+"/")):
			if !d.list(ctx, key, prefix, yield) {
				return false
			}
		case e.Type().IsRegular() && strings.HasPrefix(key, prefix):
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			info := Info{Key: key}
			if err == nil {
				info.Size, info.Stamp, info.Modified = st.Size(), stampOf(st), st.ModTime()
			}
			if !yield(info, failed(key, err)) {
				return false
			}
		}
	}
	return true
}

// entries returns what a directory has, in the order in which keys sort: a directory counts
// with its slash.
func (d *Dir) entries(dir string) ([]fs.DirEntry, error) {
	f, err := d.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	return entries, err
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
