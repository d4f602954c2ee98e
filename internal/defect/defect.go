// Package defect turns panics of readers into errors.
//
// A reader of files that panics has a defect: it is to report what is wrong with a file,
// whatever is in it. Until the defect is mended, one such file must not end a report on
// many others. So the functions that open a file to readers contain panics: each becomes
// an [Error], a reason why nothing is known of this file.
//
// Only panics are contained. That memory is exhausted, a stack overflows or goroutines
// race for a map is fatal in Go, and stays so.
//
// Tests and fuzz targets must see panics. They call [Escape].
package defect

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
)

// Error is a panic that was contained.
type Error struct {
	Value any    // of the panic
	Where string // function, file and line of the code that panicked
}

// Error says that the file is not to blame.
func (e *Error) Error() string {
	return fmt.Sprintf("hallmark has a defect, please report it with this file: %v in %s", e.Value, e.Where)
}

// Is reports whether an error is, or wraps, a panic that was contained.
func Is(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

var escaping atomic.Bool

// Escape has panics go on, as tests of readers want it, or contains them again. It
// returns what undoes it.
func Escape(on bool) (undo func()) {
	before := escaping.Swap(on)
	return func() { escaping.Store(before) }
}

// Escapes reports whether panics are to go on. Functions that contain panics ask it before
// they call recover, so that the stack of a panic that goes on is that of the defect.
func Escapes() bool { return escaping.Load() }

// Caught returns the Error for the value of a panic. It must be called by the deferred
// function that recovered it.
func Caught(value any) error { return &Error{value, where()} }

// where returns the place of a panic that was just recovered: the first one behind the
// runtime's own functions.
func where() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	panicking := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line)
		}
		panicking = panicking || inRuntime
		if !more {
			return "an unknown place"
		}
	}
}
