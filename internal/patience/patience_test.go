package patience

import (
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// TestWithin looks at a process that lets nobody look at it.
func TestWithin(t *testing.T) {
	const pid = 1 << 30
	release := make(chan struct{})
	if Within(pid, time.Millisecond, func() { <-release }) {
		t.Error("it has not ended")
	}
	if Within(pid, time.Hour, func() { t.Error("it is looked at again") }) {
		t.Error("it is looked at again")
	}
	if !Within(pid+1, time.Hour, func() {}) {
		t.Error("others are not looked at")
	}
	close(release)
	testenv.Await(t, "the end of the look", func() bool { return Within(pid, time.Hour, func() {}) })
}

// TestNoTime wants a look that may take no time to be called, and not to be waited for.
func TestNoTime(t *testing.T) {
	for range 100 {
		called := make(chan struct{})
		if Within(1<<30, 0, func() { close(called) }) {
			t.Fatal("a look was waited for")
		}
		<-called
		testenv.Await(t, "the end of the look", func() bool {
			slow.Lock()
			defer slow.Unlock()
			return !slow.pids[1<<30]
		})
	}
}
