package view

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hallmark/internal/mounts"
)

// Bounds of a source file.
const (
	maxSource      = 16 << 20
	maxSourceLines = 1 << 20
)

var (
	errNoText   = errors.New("the directory of --source has no such file")
	errTooLarge = errors.New("the file is too large to be a source")

	errTooManyLines = errors.New("the file has more than a million lines")
)

// texts has the sources in a directory that the user named.
type texts struct {
	dir  *os.File // a place (O_PATH)
	path string
}

// Text returns the lines of a source file and its name below the directory. name is what a
// profiled program says where it was compiled, and may be anything.
func (t *texts) Text(name string) (lines []string, shown string, err error) {
	if name == "" {
		return nil, "", nil
	}
	why := errNoText
	for _, candidate := range candidates(t.path, name) {
		f, err := mounts.Ours().OpenIn(int(t.dir.Fd()), candidate)
		if err == nil {
			defer f.Close()
			lines, err := readSource(f)
			return lines, candidate, err
		}
		if errors.Is(err, mounts.ErrForeign) {
			why = mounts.ErrForeign
		}
	}
	return nil, "", why
}

// candidates returns where a file that was compiled as name may be below dir: at the same
// path, or at an end of its path, the longest first.
func candidates(dir, name string) []string {
	var paths []string
	if dir, err := filepath.Abs(dir); err == nil {
		if below, ok := strings.CutPrefix(filepath.Clean(name), dir+"/"); ok {
			paths = append(paths, below)
		}
	}
	const most = 64 // components
	words := strings.FieldsFunc(filepath.Clean("/"+name), func(r rune) bool { return r == '/' })
	for i := max(0, len(words)-most); i < len(words); i++ {
		paths = append(paths, filepath.Join(words[i:]...))
	}
	return paths
}

// readSource returns the lines of a text, whose bytes they share.
func readSource(r io.Reader) ([]string, error) {
	var b strings.Builder
	if n, err := io.Copy(&b, io.LimitReader(r, maxSource+1)); err != nil {
		return nil, err
	} else if n > maxSource {
		return nil, errTooLarge
	}
	if strings.Count(b.String(), "\n") >= maxSourceLines {
		return nil, errTooManyLines
	}
	return strings.Split(b.String(), "\n"), nil
}
