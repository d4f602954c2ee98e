package terminal

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestMessageOfTooManyFiles wants the way out, once.
func TestMessageOfTooManyFiles(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("process 7: %w", syscall.EMFILE), "process 7: too many open files: raise 'ulimit -n'"},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}, "open x: too many open files: raise 'ulimit -n'"},
		{fmt.Errorf("raise 'ulimit -n': %w", syscall.EMFILE), "raise 'ulimit -n': too many open files"},
		{fmt.Errorf("process 7: %w", syscall.ENFILE), "process 7: too many open files in system"},
		{fmt.Errorf("process 7: %w", syscall.ENOENT), "process 7: no such file or directory"},
	} {
		if got := Message(test.err); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
