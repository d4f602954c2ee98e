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

// message returns the text of an error, with the paths of operations that failed as tables show them
// ([plaintext.Name]). The given names are quoted where a terminal would not show them as they are.
func message(err error, names ...string) string {
	text := err.Error()
	for _, f := range failedTexts(err) {
		text = strings.ReplaceAll(text, f.plain, f.clear)
	}
	for _, name := range names {
		if quoted := plaintext.Quote(name); quoted != name {
			text = strings.ReplaceAll(text, name, quoted)
		}
	}
	return text
}

// failedText is the text of an operation on a file that failed, and that text with a clear path.
type failedText struct{ plain, clear string }

// failedTexts returns the operations on files that failed in an error.
func failedTexts(err error) (all []failedText) {
	switch err := err.(type) {
	case *fs.PathError:
		shown := *err
		shown.Path = plaintext.Name(err.Path)
		all = append(all, failedText{err.Error(), shown.Error()})
	case *os.LinkError:
		shown := *err
		shown.Old, shown.New = plaintext.Name(err.Old), plaintext.Name(err.New)
		all = append(all, failedText{err.Error(), shown.Error()})
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if below := err.Unwrap(); below != nil {
			all = append(all, failedTexts(below)...)
		}
	case interface{ Unwrap() []error }:
		for _, below := range err.Unwrap() {
			all = append(all, failedTexts(below)...)
		}
	}
	return all
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
