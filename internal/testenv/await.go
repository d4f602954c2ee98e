package testenv

import (
	"testing"
	"time"
)

// Patience is how long tests wait for what comes at once on a machine with nothing else to do.
const Patience = 2 * time.Minute

// Await waits until seen reports true. If that takes longer than [Patience], time is what the
// test lacks.
func Await(t testing.TB, what string, seen func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !seen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			Lack(t, "%s: not in %v", what, Patience)
		}
	}
}
