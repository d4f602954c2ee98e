package reach

import (
	"testing"
	"time"
)

// TestAllowance has files in quick succession, which are not all read, and others later on.
func TestAllowance(t *testing.T) {
	var a allowance
	now := time.Now()
	if !a.take(allowedAtOnce, now) || a.take(1, now) {
		t.Error("the first file, and no more, is within the bound")
	}
	if now = now.Add(time.Second); !a.take(allowedASecond, now) || a.take(1<<20, now) {
		t.Error("after a second there is not as much as that is worth")
	}
	if now = now.Add(time.Hour); !a.take(allowedAtOnce, now) || a.take(1, now) {
		t.Error("after an hour there is not as much as at once")
	}
}
