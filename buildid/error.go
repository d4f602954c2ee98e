package buildid

import (
	"errors"
	"fmt"
	"io/fs"

	"hallmark/addr"
)

// ErrFormat says that content which starts as an ELF file does is malformed, or
// that notes are. It arrives wrapped in a *FormatError.
var ErrFormat = errors.New("malformed ELF")

// FormatError is the damage that kept an identity from being found.
type FormatError struct {
	Name   string      // of the file; "" if it has none
	Offset addr.Offset // of the damage in the file; in memory, from the ELF header
	Msg    string      // what was wrong
}

// Error returns the file's name, the offset and what was wrong there.
func (e *FormatError) Error() string {
	msg := fmt.Sprintf("%v: offset %v: %s", ErrFormat, e.Offset, e.Msg)
	if e.Name != "" {
		return e.Name + ": " + msg
	}
	return msg
}

// Unwrap returns ErrFormat.
func (e *FormatError) Unwrap() error { return ErrFormat }

var (
	errKind   = errors.New("no such kind of build ID")
	errSize   = errors.New("build ID of a size that its kind does not have")
	errDigits = errors.New("not an even number of hexadecimal digits")
	errText   = errors.New("build ID of Go that is not printable ASCII")
	errCut    = errors.New("build ID outside the file")

	errNotRegular = errors.New("not a regular file")
	errNoSize     = errors.New("file of unknown size")
	errNoNote     = errors.New("no build ID in the notes")

	// errLength says that a file is not as long as it was said to be, as the
	// files of /proc are.
	errLength = errors.New("file changes while it is read, or has no true length")
)

// named puts the file's name into an error that has none.
func named(err error, name string) error {
	var damage *FormatError
	if errors.As(err, &damage) {
		damage.Name = name
		return err
	}
	return &fs.PathError{Op: "read", Path: name, Err: err}
}
