// Package patience bounds how long a look at another process, and the work that a recording
// began, may hold up this one.
//
// The kernel lists the mappings of a process under a lock. The process holds that lock while it
// changes its mappings, and a change may wait for a file system that never answers. A look
// that waits for the lock ends with this process, so it is enough not to wait for the look.
package patience

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// LookTime is how long a look at the mappings of a process may take.
const LookTime = 500 * time.Millisecond

const (
	// maxWaiting bounds the looks that are waited for no more, each of which takes a thread.
	maxWaiting = 2000
	// After maxLost of waiting in vain a look gets no more than shortLook, and while manyWait looks
	// have not ended no more than leastLook. A user who hinders looks at many processes must not
	// hinder those at others.
	maxLost   = 2 * time.Second
	shortLook = 20 * time.Millisecond
	manyWait  = 100
	leastLook = 2 * time.Millisecond
)

// slow has the processes that looks still wait for.
var slow = struct {
	sync.Mutex
	pids map[int]bool
	lost time.Duration // in vain
}{pids: map[int]bool{}}

// Within calls look, which looks at the process pid (EveryProcess: at all), and reports whether it
// returned within limit. It does not call look for a process that an earlier look still waits
// for. After many looks in vain the limit is shorter; at a limit of 0 it waits for none.
func Within(pid int, limit time.Duration, look func()) bool {
	ok, _ := WithinMoving(pid, limit, limit, new(atomic.Int64), look)
	return ok
}

// WithinMoving is Within for a look that counts its steps: while it makes some it is waited for until most
// has passed. If it did not return, isMoving reports whether it still makes steps: then nothing holds it
// up, and there is only too much to look at.
func WithinMoving(pid int, limit, most time.Duration, steps *atomic.Int64, look func()) (ok, isMoving bool) {
	slow.Lock()
	waits := slow.pids[pid] || len(slow.pids) >= maxWaiting
	switch {
	case len(slow.pids) >= manyWait:
		limit = min(limit, leastLook)
	case slow.lost >= maxLost:
		limit = min(limit, shortLook)
	}
	slow.Unlock()
	if waits {
		return false, false
	}
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		look()
	}()
	isBack := limit > 0 && ends(done, limit)
	for n := steps.Load(); !isBack && limit > 0 && n > 0; {
		isBack = ends(done, stepTime)
		before := n
		n = steps.Load()
		if isMoving = n != before; !isMoving || time.Since(began) >= most {
			break
		}
	}
	if isBack {
		return true, false
	}
	slow.Lock()
	slow.pids[pid] = true
	slow.lost += limit
	slow.Unlock()
	go func() {
		<-done
		slow.Lock()
		defer slow.Unlock()
		delete(slow.pids, pid)
		slow.lost -= limit
	}()
	return false, isMoving
}

// ends reports whether something ends in a time.
func ends(done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// stepTime is how long a look that is not held up takes for a step at most.
const stepTime = 100 * time.Millisecond

// InTime is Within for a look that returns a value. It returns ErrSilent when the look took too
// long.
func InTime[T any](pid int, limit time.Duration, look func() (T, error)) (T, error) {
	var v T
	var err error
	if !Within(pid, limit, func() { v, err = look() }) {
		var none T
		return none, ErrSilent
	}
	return v, err
}

// InTimeOr is InTime for a look that returns something to be let go of: drop does that where nobody
// waits for it any more.
func InTimeOr[T any](pid int, limit time.Duration, look func() (T, error), drop func(T)) (T, error) {
	var mu sync.Mutex // of what follows
	var isLate, isHere bool
	var v T
	var err error
	if Within(pid, limit, func() {
		got, gotErr := look()
		mu.Lock()
		defer mu.Unlock()
		v, err, isHere = got, gotErr, gotErr == nil
		if isLate && isHere {
			drop(v)
		}
	}) {
		return v, err
	}
	mu.Lock()
	defer mu.Unlock()
	isLate = true
	if isHere { // it came just now
		drop(v)
	}
	var none T
	return none, ErrSilent
}

// ErrSilent is the error of a look that did not end in time.
var ErrSilent = errors.New("nobody could look at its mappings in time: it may wait for a file system")

// Look calls look, which looks at the process pid, and waits ProcessTime for it at most. It returns
// an error that wraps os.ErrDeadlineExceeded when the process lets nobody look at it.
func Look(pid int, look func() error) error {
	_, err := InTime(pid, ProcessTime, func() (struct{}, error) { return struct{}{}, look() })
	if errors.Is(err, ErrSilent) {
		return fmt.Errorf("process %d: %w: %w", pid, err, os.ErrDeadlineExceeded)
	}
	return err
}

// Long is how long a recording that ends waits for each of what it has begun: files that
// are opened and tables that are built. A file system may not answer any more.
const Long = 10 * time.Second

// Short is how long it waits when nothing ends any more.
const Short = 2 * time.Second

// Wait waits until all workers are done, but not for longer than that, and reports whether
// they are.
func Wait(workers *sync.WaitGroup, most time.Duration) bool {
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	return ends(done, most)
}

// EveryProcess stands for all processes where a look is at all of them.
const EveryProcess = 0

// ProcessTime is how long a look at a process may take, with all its files.
const ProcessTime = 2 * time.Second
