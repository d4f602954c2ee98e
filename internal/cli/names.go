package cli

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"hallmark/internal/plaintext"
)

// deletedMark is what the kernel writes behind the path of a file that has no name any more.
const deletedMark = " (deleted)"

// nameCell returns a name of a mapping or of a binary as it stands in a table: the marks that the
// kernel and profiles have at it stay outside of the quotes that the name may need.
func nameCell(name string) string {
	if path, ok := strings.CutSuffix(name, deletedMark); ok {
		return plaintext.Name(path) + deletedMark
	}
	if reason, path, ok := strings.Cut(name, "] "); ok && name[0] == '[' {
		return plaintext.Line(reason) + "] " + plaintext.Name(path)
	}
	return plaintext.Name(name)
}

// message returns the text of an error. Names in it that a terminal would not show as they are
// are quoted: those of files whose operation failed, and the given ones.
func message(err error, names ...string) string {
	text := strings.ReplaceAll(err.Error(), "open : ", `open "": `)
	for _, name := range append(names, failedPaths(err)...) {
		if name != "" {
			text = strings.ReplaceAll(text, name, plaintext.Quote(name))
		}
	}
	return text
}

// failedPaths returns the paths of the operations on files that an error tells of.
func failedPaths(err error) (paths []string) {
	switch err := err.(type) {
	case *fs.PathError:
		paths = append(paths, err.Path)
	case *os.LinkError:
		paths = append(paths, err.Old, err.New)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if below := err.Unwrap(); below != nil {
			paths = append(paths, failedPaths(below)...)
		}
	case interface{ Unwrap() []error }:
		for _, below := range err.Unwrap() {
			paths = append(paths, failedPaths(below)...)
		}
	}
	return paths
}

// openFailed returns the error of an operation on a file as that of opening it: a file that is
// not there has the same message in all verbs.
func openFailed(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && (at.Op == "stat" || at.Op == "lstat") {
		return &fs.PathError{Op: "open", Path: at.Path, Err: at.Err}
	}
	return err
}
