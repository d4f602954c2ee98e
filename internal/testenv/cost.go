package testenv

import (
	"syscall"
	"testing"
	"time"
)

// A Yardstick is work on a harmless input, in the same process as the work that it is compared with:
// how fast the machine is, and how busy, changes both.
type Yardstick struct {
	Harmless func()
	Times    float64 // as much may other work take

	took time.Duration // by the harmless work
}

// tries is how often work is compared before it is too much: a busy machine, or a collection of
// garbage, makes one of them longer.
const tries = 5

// Check fails the test if some work takes far more of the processors than the harmless work, each time.
// The tests of the process may not run in parallel.
func (y *Yardstick) Check(t testing.TB, what string, work func()) {
	t.Helper()
	if y.took == 0 {
		y.took = processTime(t, y.Harmless)
	}
	var took time.Duration
	for try := range tries {
		if try > 0 {
			y.took = processTime(t, y.Harmless)
		}
		if took = processTime(t, work); float64(took) <= y.Times*float64(y.took) {
			return
		}
	}
	t.Errorf("%s takes %v of the processors, more than %g times the %v of a harmless input", what, took, y.Times, y.took)
}

// processTime returns how long a function uses the processors.
func processTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return max(used()-before, time.Microsecond)
}
