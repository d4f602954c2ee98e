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

// Outcome is how a look went.
type Outcome uint8

// The outcomes.
const (
	// Ended is that of a look that returned in time.
	Ended Outcome = iota
	// Silent is that of a look that something holds up, or still holds up since an earlier time.
	Silent
	// Moving is that of a look that nothing holds up: there is only too much to look at.
	Moving
	// NoTime is that of a look that had less time than it was to have, or none: too many looks do not end,
	// at processes of its user or of very many users.
	NoTime
)

// Within calls look, which looks at the process pid (EveryProcess: at all), and reports whether it
// returned within limit. It does not call look for a process that an earlier look still waits
// for. After many looks in vain at processes of a user the limit for these is shorter; at a limit of 0 it
// waits for none.
func Within(pid int, limit time.Duration, look func()) bool { return Try(pid, limit, look) == Ended }

// Try is Within that returns how the look went.
func Try(pid int, limit time.Duration, look func()) Outcome {
	return TryMoving(pid, limit, limit, new(atomic.Int64), look)
}

// TryMoving is Try for a look that counts its steps: while it makes some it is waited for until most
// has passed.
func TryMoving(pid int, limit, most time.Duration, steps *atomic.Int64, look func()) Outcome {
	short, mayLook := slow.plan(pid, limit)
	if !mayLook {
		return Silent
	}
	if short < 0 {
		return NoTime
	}
	isShort := short < limit
	limit = short
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		look()
	}()
	isBack, isMoving := limit > 0 && (ends(done, limit) || endsBeside(done)), false
	for n := steps.Load(); !isBack && limit > 0 && n > 0; {
		isBack = ends(done, stepTime)
		before := n
		n = steps.Load()
		if isMoving = n != before; !isMoving || time.Since(began) >= most {
			break
		}
	}
	if isBack {
		return Ended
	}
	user := slow.add(pid, limit)
	go func() {
		<-done
		slow.remove(pid, user, limit)
	}()
	switch {
	case isMoving:
		return Moving
	case isShort:
		return NoTime
	}
	return Silent
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

// On a busy machine a look that nothing holds up may have no processor for longer than its limit. So it is given up
// only after so many looks at this process, which begin then and wait for a processor as well: mostBeside at most.
const (
	besides    = 3
	mostBeside = time.Second
)

// lookBeside looks at this process.
var lookBeside = func() { _, _ = os.ReadFile("/proc/self/maps") }

// endsBeside reports whether something ends before these looks do.
func endsBeside(done <-chan struct{}) bool {
	beside, look := make(chan struct{}), lookBeside
	go func() {
		defer close(beside)
		for range besides {
			look()
		}
	}()
	timer := time.NewTimer(mostBeside)
	defer timer.Stop()
	select {
	case <-done:
	case <-beside:
	case <-timer.C:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// stepTime is how long a look that is not held up takes for a step at most.
const stepTime = 100 * time.Millisecond

// InTime is Within for a look that returns a value. It returns ErrSilent when the look took too
// long, or ErrNoTime.
func InTime[T any](pid int, limit time.Duration, look func() (T, error)) (T, error) {
	var v T
	var err error
	if o := Try(pid, limit, func() { v, err = look() }); o != Ended {
		var none T
		return none, errOf(o)
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
	o := Try(pid, limit, func() {
		got, gotErr := look()
		mu.Lock()
		defer mu.Unlock()
		v, err, isHere = got, gotErr, gotErr == nil
		if isLate && isHere {
			drop(v)
		}
	})
	if o == Ended {
		return v, err
	}
	mu.Lock()
	defer mu.Unlock()
	isLate = true
	if isHere { // it came just now
		drop(v)
	}
	var none T
	return none, errOf(o)
}

var (
	// ErrSilent is the error of a look that did not end in time.
	ErrSilent = errors.New("nobody could look at its mappings in time: it may wait for a file system")
	// ErrNoTime is the error of a look for which there was no time. It wraps ErrSilent.
	ErrNoTime = fmt.Errorf("too many looks at processes of its user do not end: %w", ErrSilent)
)

// errOf returns the error of a look that did not end in time.
func errOf(o Outcome) error {
	if o == NoTime {
		return ErrNoTime
	}
	return ErrSilent
}

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
