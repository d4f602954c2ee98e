package mounts

import (
	"errors"
	"sync"
	"time"
)

// errSlow says that the mounts of a namespace could not be read in time.
var errSlow = errors.New("reading mounts takes too long")

// Bounds on reading the mounts of other namespaces. The kernel allows 100,000 mounts in one, and goes up
// to the root from each (prepend_path of fs/d_path.c). Where they lie on top of each other,
// reading them once takes minutes, and anybody can make many such namespaces. Mounts that were not
// read count as file systems that do not answer: a helper asks them.
const (
	tableTime  = 100 * time.Millisecond // for one table
	tablesTime = time.Second            // for all, at once
	tablesPart = 20                     // and this part of the time that goes by
)

// allowance is the time that is left for reading the mounts of others.
type allowance struct {
	mu     sync.Mutex
	spent  time.Duration
	filled time.Time // when spent was last lowered
}

var others allowance

// read reads mountinfo, if that can be done in time. A table that was read quickly costs nothing, or else
// the many small ones of honest processes would use up the time.
func (a *allowance) read(fd int) ([]byte, error) {
	began := time.Now()
	if !a.isLeft(began) {
		return nil, errSlow
	}
	text, err := readAll(fd, began.Add(tableTime))
	if took := time.Since(began); took > tableTime/20 {
		a.spend(took)
	}
	return text, err
}

func (a *allowance) isLeft(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.filled.IsZero() {
		a.spent = max(0, a.spent-now.Sub(a.filled)/tablesPart)
	}
	a.filled = now
	return a.spent < tablesTime
}

func (a *allowance) spend(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent += took
}
