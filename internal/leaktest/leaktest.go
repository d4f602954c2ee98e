// Package leaktest has which goroutines a test may leave behind.
package leaktest

import (
	"bytes"
	"runtime"
	"slices"

	"go.uber.org/goleak"
)

// heldUp are the functions that such goroutines are in.
var heldUp = []string{
	"hallmark/internal/patience.TryMoving.func1",
	"hallmark/internal/patience.TryMoving.func2",
	"hallmark/internal/aside.start.func1",
	"hallmark/procmap.openMapFile",
	"hallmark/internal/turns.(*lane[...]).waitOrLeave.func1",
	"hallmark/internal/patience.Wait.func1",
}

// HeldUpLooks are the goroutines of looks at processes that nobody waits for any more, those that wait for them in
// turn, and those that wait for the end of helpers of internal/aside, which were killed. Whichever file system holds up a
// process of another test lets them go; no test can. These packages' own tests look for such goroutines.
func HeldUpLooks() []goleak.Option {
	var all []goleak.Option
	for _, name := range heldUp {
		all = append(all, goleak.IgnoreAnyFunction(name))
	}
	return all
}

// AreHeldUp reports whether there are such goroutines. They hold descriptors of what they look at.
func AreHeldUp() bool {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return slices.ContainsFunc(heldUp, func(name string) bool { return bytes.Contains(all, []byte(name)) })
}
