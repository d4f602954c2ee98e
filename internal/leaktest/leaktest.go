// Package leaktest has which goroutines a test may leave behind.
package leaktest

import (
	"bytes"
	"runtime"

	"go.uber.org/goleak"
)

// HeldUpLooks are the goroutines of looks at processes that internal/patience gave up waiting for, and those that wait
// for the end of helpers of internal/aside, which were killed. Whichever file system holds up a process of another test
// lets them go; no test can. These packages' own tests look for such goroutines.
func HeldUpLooks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("hallmark/internal/patience.TryMoving.func1"),
		goleak.IgnoreAnyFunction("hallmark/internal/patience.TryMoving.func2"),
		goleak.IgnoreAnyFunction("hallmark/internal/aside.start.func1"),
	}
}

// AreHeldUp reports whether there are such goroutines. They hold descriptors of what they look at.
func AreHeldUp() bool {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return bytes.Contains(all, []byte("hallmark/internal/patience.TryMoving.func")) || bytes.Contains(all, []byte("hallmark/internal/aside.start.func1"))
}
