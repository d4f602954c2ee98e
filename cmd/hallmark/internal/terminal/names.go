package terminal

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"hallmark/internal/plaintext"
)

// deletedMark is what the kernel writes behind the path of a file that has no name any more.
const deletedMark = " (deleted)"

// Name returns a name of a mapping or of a binary as it stands in a table: the marks that the
// kernel and profiles have at it stay outside of the quotes that the name may need.
func Name(name string) string {
	if path, ok := strings.CutSuffix(name, deletedMark); ok {
		return plaintext.Name(path) + deletedMark
	}
	if reason, path, ok := strings.Cut(name, "] "); ok && name[0] == '[' {
		return plaintext.Line(reason) + "] " + plaintext.Name(path)
	}
	return plaintext.Name(name)
}

// Message returns the text of an error, with the paths of operations that failed as tables show them
// ([plaintext.Name]). The given names are quoted where a terminal would not show them as they are. Where a process
// may have no more open files the text says what helps, whichever file was the one too many.
func Message(err error, names ...string) string {
	text := err.Error()
	for _, f := range failedTexts(err) {
		text = strings.ReplaceAll(text, f.plain, f.clear)
	}
	for _, name := range names {
		if quoted := plaintext.Quote(name); quoted != name {
			text = strings.ReplaceAll(text, name, quoted)
		}
	}
	if errors.Is(err, syscall.EMFILE) && !strings.Contains(text, "ulimit -n") {
		text += ": raise 'ulimit -n'"
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

// OpenFailed returns the error of an operation on a file as that of opening it: a file that is
// not there has the same message in all verbs.
func OpenFailed(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && (at.Op == "stat" || at.Op == "lstat") {
		return &fs.PathError{Op: "open", Path: at.Path, Err: at.Err}
	}
	return err
}

// Quoted writes a word so that a shell would read it as one, and a terminal shows all of
// it: words come from whoever runs something here.
func Quoted(s string) string {
	switch {
	case s == "":
		return "''"
	case isPlain(s) && !strings.ContainsAny(s, " '\"\\$`!*?[]{}()<>|&;~#"):
		return s
	case isPlain(s) && !strings.Contains(s, "'"):
		return "'" + s + "'"
	case isShown(s) && !strings.ContainsAny(s, " '\"\\"):
		return s
	}
	// $'…' of bash and others has the escapes of Go's strings.
	text := strconv.Quote(s)
	text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	return "$'" + strings.ReplaceAll(text, "'", `\'`) + "'"
}

// isPlain reports whether s is printable ASCII, as nearly all words are.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isShown reports whether a terminal shows s as it is.
func isShown(s string) bool { return utf8.ValidString(s) && plaintext.Line(s) == s }

// ShortID cuts an identity for a terminal so narrow that no path would fit behind
// the whole of it. The start of one is what directories of debug files go by.
func ShortID(id string, width int) string {
	most := 40
	switch {
	case width < NarrowWidth:
		most = 12
	case width < 110:
		most = 16
	}
	if width == 0 || len(id) <= most {
		return id
	}
	return id[:most-1] + "…"
}

// MostNames is how many binaries are named for one reason.
const MostNames = 4
