package capture

import (
	"sync"
	"time"
)

// patience is how long a recording that ends waits for each of what it has begun: files that
// are opened and tables that are built. A file system may not answer any more.
const patience = 10 * time.Second

// shortPatience is how long it waits when nothing ends any more.
const shortPatience = 2 * time.Second

// waitFor waits until all workers are done, but not for longer than that, and reports whether
// they are.
func waitFor(workers *sync.WaitGroup, most time.Duration) bool {
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}
