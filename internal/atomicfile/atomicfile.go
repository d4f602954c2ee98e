// Package atomicfile publishes files whole: whoever opens the name sees what
// was there before or the complete new content, never a part of it.
//
// Until then the content has no name, where the file system can do that (O_TMPFILE):
// nothing is left of a process that is killed. Elsewhere the content has a name beside the
// file's, and is locked as long as its process lives. The next Write of that file removes
// what is not locked any more.
package atomicfile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write makes the file called name hold what the function write writes. The
// content goes to a temporary file in the same directory, is flushed to the
// disk, and takes the name at the end; when anything fails, the name is
// untouched and the temporary file is gone.
//
// A new file has the mode perm less the umask. A file that replaces one of this user
// has the mode of that one, its group and its access control list. A file that replaces
// one of somebody else is this user's, and its mode allows nothing that perm, the umask or
// the old mode forbids.
//
// Where name is a symbolic link, the file that it leads to is written, which need not exist.
// No link of another user's is followed, unless that is root.
//
// A name that exists and is no regular file, such as /dev/null or a pipe, cannot
// be replaced and is written to as it stands.
func Write(name string, perm fs.FileMode, write func(io.Writer) error) error {
	return WriteSeeking(name, perm, func(f io.WriteSeeker) error { return buffered(f, write) })
}

func buffered(f io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

// WriteSeeking is Write for formats of which what is at the start is known last. What
// is written is not buffered.
func WriteSeeking(name string, perm fs.FileMode, write func(io.WriteSeeker) error) error {
	p, err := find(name)
	if err != nil {
		return err
	}
	defer p.dir.Close()
	if p.old != nil && !p.isReplaceable() {
		return p.writeThrough(write)
	}
	removeLeftovers(p.dir, p.base)
	return p.replace(perm, write)
}

// Rewrite is Write for the regular file that is open as old, with its mode, group and access
// control list. If name leads to another file by now, that one is left alone, and the error
// is ErrReplaced: whoever owns a directory can put a link to any file there.
func Rewrite(old *os.File, name string, write func(io.Writer) error) error {
	info, err := old.Stat()
	if err != nil {
		return err
	}
	p, err := find(name)
	if err != nil {
		return err
	}
	defer p.dir.Close()
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || p.old == nil || p.isMagic || p.old.Dev != st.Dev || p.old.Ino != st.Ino {
		return p.named(ErrReplaced)
	}
	removeLeftovers(p.dir, p.base)
	return p.replace(info.Mode().Perm(), func(f io.WriteSeeker) error { return buffered(f, write) })
}

// ErrReplaced says that a name leads to another file than before.
var ErrReplaced = errors.New("leads to another file by now")

// Open opens a file for what is to be read while it is written: it is empty then, and new with
// the mode perm less the umask if it was not there. Links are followed as by Write. No file of
// another user's is written, unless that is root.
func Open(name string, perm fs.FileMode) (*os.File, error) {
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	defer p.dir.Close()
	if p.old != nil && !p.isReplaceable() {
		return p.open(unix.O_RDWR)
	}
	if p.isForeign {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errForeign}
	}
	if p.old == nil {
		return p.make(perm)
	}
	return p.empty()
}

// betweenFindAndOpen is set by tests, and called when a place was judged and is not opened yet.
var betweenFindAndOpen = func() {}

// make makes the file that was not there. It is no file that somebody else made since.
func (p *place) make(perm fs.FileMode) (*os.File, error) {
	betweenFindAndOpen()
	fd, err := openat(p.dir, p.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.name, Err: err}
	}
	return os.NewFile(uintptr(fd), p.name), nil
}

// empty opens the regular file that was judged, and cuts it when it is known to be that one.
func (p *place) empty() (*os.File, error) {
	betweenFindAndOpen()
	fd, err := openat(p.dir, p.base, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.name, Err: err}
	}
	f := os.NewFile(uintptr(fd), p.name)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Dev != p.old.Dev || st.Ino != p.old.Ino) {
		err = ErrReplaced
	}
	if err == nil {
		err = unix.Ftruncate(fd, 0)
	}
	if err != nil {
		f.Close()
		return nil, p.named(err)
	}
	return f, nil
}

// writeThrough writes to what has the name and is no file that could be replaced.
func (p *place) writeThrough(write func(io.WriteSeeker) error) error {
	f, err := p.open(unix.O_WRONLY)
	if err != nil {
		return err
	}
	return finish(f, write, func() error { return nil })
}

// open opens a device, a pipe or a link of /proc. The kernel follows that link: the pipe behind
// /dev/stdout has no other name. Nothing else is followed, and nothing is cut that was put there
// since.
func (p *place) open(mode int) (*os.File, error) {
	if p.isMagic {
		return os.OpenFile(p.name, mode|unix.O_TRUNC, 0)
	}
	fd, err := openat(p.dir, p.base, mode|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, p.named(err)
	}
	f := os.NewFile(uintptr(fd), p.name)
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = p.named(ErrReplaced)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// WriteIn is Write for a name in a directory that is open, which nothing leads out of: what
// has the name is replaced, whatever it is.
func WriteIn(dir *os.Root, name string, perm fs.FileMode, write func(io.Writer) error) error {
	return writeIn(dir, name, perm, write, false)
}

// WriteFastIn is WriteIn for content that can be made again and says whether it is whole: it
// does not wait for the disk, so a part of it may be there after the machine has crashed.
func WriteFastIn(dir *os.Root, name string, perm fs.FileMode, write func(io.Writer) error) error {
	return writeIn(dir, name, perm, write, true)
}

func writeIn(dir *os.Root, name string, perm fs.FileMode, write func(io.Writer) error, fast bool) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	p := place{dir: d, base: name, name: dir.Name() + "/" + name, fast: fast}
	return p.replace(perm, func(f io.WriteSeeker) error { return buffered(f, write) })
}

// replace makes the file, and lets it take the name when it is whole.
func (p *place) replace(perm fs.FileMode, write func(io.WriteSeeker) error) (err error) {
	t, err := newTemp(p.dir, p.base, p.name, perm)
	if err != nil {
		return &fs.PathError{Op: "create", Path: p.name, Err: err}
	}
	defer func() {
		if err != nil {
			t.remove()
		}
		t.f.Close()
	}()
	if p.old != nil {
		if err := inherit(t.f, p.oldFile(), p.old, perm); err != nil {
			return &fs.PathError{Op: "create", Path: p.name, Err: err}
		}
	}
	if err := write(t.f); err != nil {
		return err
	}
	if p.fast {
		return p.named(t.publish(p.base))
	}
	if err := t.f.Sync(); err != nil {
		return err
	}
	err = t.publish(p.base)
	if errors.Is(err, unix.EBUSY) { // something is mounted on the file alone, as in containers
		return p.named(t.copyTo(p.base))
	}
	if err != nil {
		return p.named(err)
	}
	return p.named(p.sync())
}

// named puts the name that the user gave into an error.
func (p *place) named(err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "write", Path: p.name, Err: err}
}

// finish writes f, calls sync and closes f, which happens in any case.
func finish(f *os.File, write func(io.WriteSeeker) error, sync func() error) error {
	err := write(f)
	if err == nil {
		err = sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// sync makes the file's name last through a crash. A directory that this user may not read
// cannot be opened for it.
func (p *place) sync() error {
	fd, err := openat(p.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
