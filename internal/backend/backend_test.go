package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNames(t *testing.T) {
	for _, b := range []Backend{Auto, Perf, BPF, Stackmap} {
		if got, err := Parse(b.String()); got != b || err != nil {
			t.Errorf("%v: %v, error %v", b, got, err)
		}
	}
	if _, err := Parse("dtrace"); err == nil {
		t.Error("there is no dtrace")
	}
}

// TestShortage says that a process without open files left can raise the limit, and keeps the
// kernel's error.
func TestShortage(t *testing.T) {
	err := Unusable(BPF, fmt.Errorf("a map: %w", unix.EMFILE))
	if want := "the backend bpf ran out of open files; raise 'ulimit -n'"; err.Error() != want {
		t.Errorf("%v", err)
	}
	if want := "bpf ran out of open files"; WhyNot(err) != want {
		t.Errorf("%q", WhyNot(err))
	}
	if !IsShortage(err) || IsRefusal(err) || !errors.Is(err, unix.EMFILE) {
		t.Errorf("the error of the kernel is lost: %#v", err)
	}
}

// TestWhyNotOfOthers leaves an error alone that is of no backend.
func TestWhyNotOfOthers(t *testing.T) {
	if got := WhyNot(unix.EINVAL); got != unix.EINVAL.Error() {
		t.Errorf("%q", got)
	}
	if err := Unusable(Stackmap, unix.EINVAL); !strings.Contains(WhyNot(err), "stackmap ") || errors.Unwrap(err) != unix.EINVAL {
		t.Errorf("%v", err)
	}
}
