package reach

import (
	"sync"
	"time"
)

// Allowances are those of the files that only root or this user can have written, and of all
// other files: nobody can use up what is for the former.
type Allowances struct{ trusted, others allowance }

func (a *Allowances) of(isTrusted bool) *allowance {
	if isTrusted {
		return &a.trusted
	}
	return &a.others
}

// allowance bounds what is read of files while samples or events are taken: whoever executes
// many large files could keep us busy with them.
type allowance struct {
	mu    sync.Mutex
	spent int64
	since time.Time
}

const (
	allowedAtOnce  = 512 << 20 // bytes
	allowedASecond = 64 << 20
)

// take reports whether so many bytes may be read now, and counts them.
func (a *allowance) take(size int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.IsZero() {
		a.spent = max(0, a.spent-int64(now.Sub(a.since).Seconds()*allowedASecond))
	}
	a.since = now
	if a.spent+size > allowedAtOnce {
		return false
	}
	a.spent += size
	return true
}
