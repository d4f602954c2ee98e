package perfring

import (
	"testing"
	"time"
)

// TestWallTime wants times that were between two readings of the clock of files, or earlier: never later.
func TestWallTime(t *testing.T) {
	for range 1000 {
		at := Monotonic()
		now := time.Now()
		if got := WallTime(at); got.After(now) || now.Sub(got) > time.Minute {
			t.Fatalf("%v before %v, which is %v", at, now, got)
		}
	}
}
