// Package cachedir keeps files that were made from others in a directory of bounded size.
// Several processes may use the same directory at once. All files in it can be made again:
// it may be removed at any time, and whoever reads a file must know whether it is whole.
//
// A directory is used only if nobody but this user and root can change what is in it, or
// where its path leads. Root in the environment of another user would otherwise follow that
// user's links, overwrite what they lead to, and believe what that user put there. Without a
// directory there is no cache, and all works as if nothing were kept: the error is ErrShared.
package cachedir

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/trust"
)

// ErrShared says that a directory is not used, because of those who could change what is in
// it. It arrives wrapped in a *fs.PathError.
var ErrShared = errors.New("not used: another user can change it, or where its path leads")

// ErrNotOwn says that there is something with the name of a file that is kept, which others
// can have written, or which is no regular file. It arrives wrapped in a *fs.PathError.
var ErrNotOwn = errors.New("no file that this user alone can have written")

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

// Name returns the path of the file that is kept for an identity. What distinguishes several
// files for one identity is in more.
func (d *Dir) Name(id buildid.ID, more ...string) string {
	name := strings.NewReplacer("/", "_", ":", "-").Replace(id.String())
	return filepath.Join(d.Path, strings.Join(append([]string{name}, more...), "-")+d.Suffix)
}

// Names returns the paths of the files that may be kept for an identity, whatever distinguishes them
// apart. A file among them may be of another identity whose text has a dash.
func (d *Dir) Names(id buildid.ID) ([]string, error) {
	all, err := d.listing()
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(filepath.Base(d.Name(id)), d.Suffix) + "-"
	first, _ := slices.BinarySearch(all, prefix)
	var names []string
	for _, name := range all[first:] {
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if strings.HasSuffix(name, d.Suffix) {
			names = append(names, filepath.Join(d.Path, name))
		}
	}
	return names, nil
}

// listings are the names in directories, since a report asks for the files of many
// identities.
var listings sync.Map // *listing by path

// A listing is the sorted names in a directory.
type listing struct {
	changed time.Time // the directory, last
	names   []string
}

// settled is how long ago a directory was changed last of which another change gives another
// time: more than a tick of the kernel's clock.
const settled = 100 * time.Millisecond

// listing returns the sorted names in the directory, none if it is not there.
func (d *Dir) listing() ([]string, error) {
	root, err := d.use()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	changed := info.ModTime()
	if known, ok := listings.Load(d.Path); ok && known.(*listing).changed.Equal(changed) {
		return known.(*listing).names, nil
	}
	isSettled := time.Since(changed) > settled
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if isSettled {
		listings.Store(d.Path, &listing{changed, names})
	}
	return names, nil
}

// Check returns why the directory is not used, nil if it is, or will be when there is
// something to keep.
func (d *Dir) Check() error { return Check(d.Path) }

// Check returns an error that wraps ErrShared if others can change what is in a directory of
// caches, which need not be there yet.
func Check(path string) error {
	if !trust.PrivateDir(path) {
		return &fs.PathError{Op: "cache", Path: path, Err: ErrShared}
	}
	return nil
}

// use opens the directory, for the caller to close. All work in it is done in this very
// directory: none that somebody puts in its place is used.
func (d *Dir) use() (*os.Root, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	return os.OpenRoot(d.Path)
}

// make is use after making the directory if need be.
func (d *Dir) make() (*os.Root, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, err
	}
	return d.use() // another may have made it since it was looked at
}

// Open opens a file that is kept, by its path. The error wraps fs.ErrNotExist or ErrNotOwn if
// there is none.
func (d *Dir) Open(path string) (*os.File, error) {
	root, err := d.use()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.Base(path)
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	notOwn := &fs.PathError{Op: "open", Path: path, Err: ErrNotOwn}
	if !info.Mode().IsRegular() {
		return nil, notOwn
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err != nil || !os.SameFile(info, now) || !trust.OwnFile(f) {
		f.Close()
		return nil, notOwn
	}
	if isDiscarded(path, now) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return f, nil
}

// Write makes a file, by its path, in place of an earlier one, and the directory if need be.
// It is there as a whole or not at all, and for this user alone.
func (d *Dir) Write(path string, write func(io.Writer) error) error {
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	return atomicfile.WriteIn(root, filepath.Base(path), 0o600, write)
}

// WriteFast is Write for files that say whether they are whole: it does not wait for the disk.
func (d *Dir) WriteFast(path string, write func(io.Writer) error) error {
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	return atomicfile.WriteFastIn(root, filepath.Base(path), 0o600, write)
}

// TryLock locks a file of the directory, by its path, until unlock is called or the process
// ends. The file is made for it, and goes away with the lock. The error is EWOULDBLOCK if
// somebody has it.
func (d *Dir) TryLock(path string) (unlock func(), err error) {
	root, err := d.make()
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	f, err := tryLock(root, name)
	if err != nil {
		root.Close()
		return nil, err
	}
	return func() {
		_ = root.Remove(name) // while it is locked: see tryLock
		_ = f.Close()
		_ = root.Close()
	}, nil
}

func tryLock(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		// The process that had it before has removed it: a lock of a file that nobody else can
		// open is none.
		mine, statErr := f.Stat()
		if there, err := root.Stat(name); statErr == nil && err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		err = syscall.EWOULDBLOCK
	}
	f.Close()
	return nil, err
}

// usedInterval is how exactly it is known when a file was used.
const usedInterval = 24 * time.Hour

// Used notes that a file is in use, in its time of modification: that of access is not
// kept on many machines.
func Used(f *os.File) {
	info, err := f.Stat()
	if now := time.Now(); err == nil && now.Sub(info.ModTime()) > usedInterval {
		at := syscall.NsecToTimeval(now.UnixNano())
		_ = syscall.Futimes(int(f.Fd()), []syscall.Timeval{at, at}) // a disk that is not written to
	}
}

// Limit returns how many bytes the files may have: most, or a tenth of the disk if that is
// less.
func (d *Dir) Limit(most int64) int64 {
	var st syscall.Statfs_t
	if d.Check() != nil || syscall.Statfs(d.Path, &st) != nil {
		return most
	}
	return min(most, int64(st.Blocks)/10*st.Bsize)
}

// List returns all files, those first that nobody used for longest.
func (d *Dir) List() ([]File, error) {
	root, err := d.use()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return d.list(root)
}

func (d *Dir) list(root *os.Root) ([]File, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
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
// max bytes; but newest, a path, stays. A process that has a file open keeps it until it closes it.
func (d *Dir) Prune(newest string, max int64) error {
	root, err := d.use()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := d.list(root)
	total := int64(0)
	for _, f := range files {
		total += f.Size
	}
	for _, f := range files {
		if total <= max {
			break
		}
		if f.Path != newest && root.Remove(filepath.Base(f.Path)) == nil {
			total -= f.Size
		}
	}
	d.sweep(root)
	return err
}

// IsFull reports whether it is time for Prune, of whoever stored so many bytes: by chance, so that files have about a
// sixteenth more than max at most. To look at all files each time that one is stored takes longer the more there are.
func IsFull(stored, max int64) bool { return rand.Int64N(max/16+1) < stored }

// Remove removes files that are kept, by their paths. Files that cannot be removed stay.
func (d *Dir) Remove(paths ...string) {
	root, err := d.use()
	if err != nil {
		return
	}
	defer root.Close()
	for _, path := range paths {
		_ = root.Remove(filepath.Base(path))
	}
}

// leftoverAge is when a file that a process was writing belongs to nobody any more.
const leftoverAge = 24 * time.Hour

// sweep removes what processes left behind that ended before they were done. A lock
// that is taken is as new as the process that took it.
func (d *Dir) sweep(root *os.Root) {
	atomicfile.Sweep(root)
	entries, _ := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if info, err := e.Info(); err == nil && d.isLeftover(e.Name()) && time.Since(info.ModTime()) > leftoverAge {
			_ = root.Remove(e.Name())
		}
	}
}

// isLeftover reports whether a name is one that atomicfile gives to what it writes, also
// where nothing can be locked, or that of a lock.
func (d *Dir) isLeftover(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, d.Suffix+".") || d.LockSuffix != "" && strings.HasSuffix(name, d.LockSuffix)
}
