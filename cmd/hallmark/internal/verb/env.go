// Package verb has what the verbs of the command have in common: the files that they read and write,
// errors with an exit status, flags and arguments, signals, JSON objects, and when garbage is collected.
package verb

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// An Env is what a verb may touch of the world outside its arguments.
type Env struct {
	Stdout, Stderr io.Writer
	Stdin          io.Reader
}

// NewEnv returns the Env of this process.
func NewEnv() *Env {
	return &Env{Stdout: &checkedFile{File: os.Stdout}, Stderr: unbreakable(os.Stderr), Stdin: os.Stdin}
}

// LostOutput returns why output to standard output got lost, nil where it did not.
func (e *Env) LostOutput() error {
	if out, ok := e.Stdout.(*checkedFile); ok && out.failed() {
		return out.err
	}
	return nil
}

// ReasonOf returns why a file could not be written, without the name that it has here.
func ReasonOf(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// checkedFile remembers that a write failed, so that output that got lost is not
// taken for success.
type checkedFile struct {
	*os.File
	err error
}

func (f *checkedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

// failed reports whether output got lost, and not because nobody wanted more of it.
func (f *checkedFile) failed() bool { return f.err != nil && !errors.Is(f.err, syscall.EPIPE) }

// IsOutputLost reports whether an error is that of a write to standard output, which Main
// reports: a verb may take it for one of its input.
func (e *Env) IsOutputLost(err error) bool {
	lost := e.LostOutput()
	return lost != nil && errors.Is(err, lost)
}
