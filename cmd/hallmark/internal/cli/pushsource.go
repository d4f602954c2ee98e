package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/mounts"
	"hallmark/symbol"
)

// sourceDirs are the directories that the user allows to send sources from. Debug information is
// a stranger's: without such a bound it could name any file that this user can read.
type sourceDirs []sourceDir

// sourceDir is one of them, under each path by which debug information may name it.
type sourceDir struct {
	dir   *os.File // a place (O_PATH)
	paths []string
}

func openSourceDirs(names []string) (sourceDirs, error) {
	var s sourceDirs
	for _, name := range names {
		dir, err := os.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--source: %w", err)
		}
		d := sourceDir{dir: dir}
		s = append(s, d)
		abs, err := filepath.Abs(name)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--source: %w", err)
		}
		d.paths = []string{abs}
		// A compiler names its working directory with or without the links on the way.
		if physical, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); err == nil && physical != abs {
			d.paths = append(d.paths, physical)
		}
		s[len(s)-1] = d
	}
	return s, nil
}

func (s sourceDirs) close() {
	for _, d := range s {
		d.dir.Close()
	}
}

// below returns the name below the directory of a path that debug information names.
func (d *sourceDir) below(path string) (name string, ok bool) {
	if !filepath.IsAbs(path) {
		return "", false
	}
	path = filepath.Clean(path)
	for _, dir := range d.paths {
		if name, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); ok && name != "" {
			return name, true
		}
	}
	return "", false
}

// open opens a source file that is in one of the directories.
func (s sourceDirs) open(path string) (*os.File, error) {
	err := error(fs.ErrNotExist)
	for _, d := range s {
		name, ok := d.below(path)
		if !ok {
			continue
		}
		f, why := mounts.Ours().OpenIn(int(d.dir.Fd()), name)
		if why == nil {
			return f, nil
		}
		err = errors.Join(err, why)
	}
	return nil, err
}

// of returns the paths in the directories that the debug information of a file names.
func (s sourceDirs) of(f *os.File, name string, id buildid.ID) (paths []string) {
	if len(s) == 0 {
		return nil
	}
	file, err := symbol.NewFile(f, name)
	if err != nil {
		return nil // there is no debug information to look at
	}
	finder := &debuginfo.Finder{}
	file = finder.Complete(id, file)
	defer file.Close()
	index, err := file.Index(symbol.IndexOptions{Open: finder.Companion})
	if err != nil {
		return nil
	}
	defer index.Close()
	seen := map[string]bool{}
	for piece := range index.Pieces() {
		for _, frame := range piece.Frames {
			if seen[frame.File] {
				continue
			}
			seen[frame.File] = true
			for _, d := range s {
				if _, ok := d.below(frame.File); ok {
					paths = append(paths, frame.File)
					break
				}
			}
		}
	}
	return paths
}
