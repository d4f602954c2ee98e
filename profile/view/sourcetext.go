package view

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/internal/plaintext"
)

// What is read of a source file at most.
const (
	maxSource     = 16 << 20
	maxSourceLine = 1000
)

var (
	errNoText   = errors.New("the directory of --source has no such file")
	errTooLarge = errors.New("the file is too large to be a source")
)

// text returns the lines of a source file and its name below the directory that the user
// named. name is what a profiled program says where it was compiled, and may be anything.
func (s *source) text(name string) (lines []string, shown string, err error) {
	if s.sources == nil || name == "" {
		return nil, "", nil
	}
	for _, candidate := range candidates(s.options.Sources, name) {
		if f, err := openSource(s.sources, candidate); err == nil {
			defer f.Close()
			lines, err := readSource(f)
			return lines, candidate, err
		}
	}
	return nil, "", errNoText
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

// openSource opens a regular file below a directory, which no link leads out of. Nothing else
// is opened: nobody may ever write to a pipe, and a device may do something for whoever opens it.
func openSource(dir *os.Root, name string) (*os.File, error) {
	info, err := dir.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoText
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() { // it was replaced
		f.Close()
		return nil, errNoText
	}
	return f, nil
}

func readSource(r io.Reader) ([]string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSource {
		return nil, errTooLarge
	}
	return strings.Split(string(b), "\n"), nil
}

// plainSource returns a line of a source file as it is shown. It keeps nothing of the file.
func plainSource(line string) string {
	line = strings.Clone(line[:min(len(line), maxSourceLine)])
	return plaintext.Line(strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "        "))
}
