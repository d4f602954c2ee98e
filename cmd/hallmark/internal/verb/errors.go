package verb

import (
	"fmt"
)

// ExitStatus is an error that only sets the exit status: the verb has reported what went wrong.
type ExitStatus int

// Error returns the status in words.
func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// StatusError is an error with an exit status of its own.
type StatusError struct {
	Status int
	error
}

// WithStatus returns an error with an exit status of its own.
func WithStatus(status int, err error) error { return StatusError{status, err} }

// UsageError marks a command line that cannot be carried out as it is written.
type UsageError struct{ error }

// Usage returns an error that marks a command line which cannot be carried out as it is written.
func Usage(err error) error { return UsageError{err} }

// Usagef is usage with the text of the error.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
