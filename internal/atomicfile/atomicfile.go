// Package atomicfile publishes files whole: whoever opens the name sees what
// was there before or the complete new content, never a part of it.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write makes the file called name hold what the function write writes. The
// content goes to a temporary file in the same directory, is flushed to the
// disk, and takes the name by a rename; when anything fails, the name is
// untouched and the temporary file is gone. The file's mode is perm less the
// umask. Where name is a symbolic link, the file that it leads to is replaced.
//
// A name that exists and is no regular file, such as /dev/null or a pipe, cannot
// be replaced and is written to as it stands.
func Write(name string, perm fs.FileMode, write func(io.Writer) error) error {
	return WriteSeeking(name, perm, func(f io.WriteSeeker) error {
		w := bufio.NewWriterSize(f, 1<<16)
		if err := write(w); err != nil {
			return err
		}
		return w.Flush()
	})
}

// WriteSeeking is Write for formats of which what is at the start is known last. What
// is written is not buffered.
func WriteSeeking(name string, perm fs.FileMode, write func(io.WriteSeeker) error) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		return writeThrough(name, write)
	}
	if err == nil {
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
	}
	return replace(name, perm, write)
}

func writeThrough(name string, write func(io.WriteSeeker) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return finish(f, write, func() error { return nil })
}

func replace(name string, perm fs.FileMode, write func(io.WriteSeeker) error) (err error) {
	f, err := create(name, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := finish(f, write, f.Sync); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// create opens a new file beside name. os.CreateTemp would do but for its mode,
// which is 0600 whatever the umask.
func create(name string, perm fs.FileMode) (*os.File, error) {
	dir, base := filepath.Split(name)
	for {
		temp := fmt.Sprintf("%s.%s.%08x", dir, base, rand.Uint32())
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, &fs.PathError{Op: "create", Path: name, Err: errors.Unwrap(err)}
		}
	}
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

// syncDir makes a rename in dir last through a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
