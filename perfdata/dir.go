package perfdata

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"hallmark/internal/regular"
)

// Files are the open files of a recording. The first one has its head; a recording that is a
// directory may have others with records alone.
type Files []*os.File

// maxFiles is how many files of a directory are opened: perf makes one for each CPU.
const maxFiles = 1 << 12

// OpenFiles opens the file called name, or those of the directory that perf record --threads
// wrote, as perf does (tools/perf/util/data.c): "data", which was called "header" before Linux
// 5.8, and data.0, data.1 and so on.
func OpenFiles(name string) (Files, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		return Files{f}, nil
	}
	names, err := recordFiles(name)
	if err != nil {
		return nil, err
	}
	var files Files
	for _, name := range names {
		f, err := openPart(name)
		if err != nil {
			return nil, errors.Join(err, files.Close())
		}
		files = append(files, f)
	}
	return files, nil
}

// openPart opens a file of a directory, which must be a regular one: others may never end.
func openPart(name string) (*os.File, error) {
	f, err := regular.Open(name)
	if errors.Is(err, regular.ErrOther) {
		return nil, fmt.Errorf("%s: %w: no regular file", name, ErrNotPerfData)
	}
	return f, err
}

// recordFiles returns the paths of the files of a directory, the one with the head first.
func recordFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	head := "data"
	if !has(head) {
		head = "header"
	}
	if !has(head) {
		return nil, fmt.Errorf("%s: %w: it is a directory without perf's file \"data\"", dir, ErrNotPerfData)
	}
	type part struct {
		number uint64
		name   string
	}
	var parts []part
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "data.")
		if n, err := strconv.ParseUint(digits, 10, 32); ok && err == nil {
			parts = append(parts, part{n, filepath.Join(dir, e.Name())})
		}
	}
	if len(parts) > maxFiles {
		return nil, fmt.Errorf("%s: %w: more than %d files", dir, ErrNotPerfData, maxFiles)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.number, b.number) })
	names := []string{filepath.Join(dir, head)}
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names, nil
}

// Records returns the files without the first one, for ReaderOptions.More.
func (f Files) Records() []io.Reader {
	var all []io.Reader
	for _, file := range f[min(1, len(f)):] {
		all = append(all, file)
	}
	return all
}

// Close closes the files.
func (f Files) Close() error {
	var errs []error
	for _, file := range f {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
