// Package quota divides among users what is bounded in sum, so that a user who wants very much of it loses
// that and takes nothing away from others.
package quota

import (
	"os"
	"sync"
	"time"
)

// A Pool is for all users but root and this user, who have no bound. Users who take at the same time get as
// much each as is left in the end. Of those who come one after the other, each gets half of what is left. So
// each of the first users has a floor besides, which the others cannot take.
//
// The methods may be called by several goroutines at once. A nil Pool has no bounds.
type Pool struct {
	mu     sync.Mutex
	left   int64
	floor  int64
	taken  map[uint32]int64
	exempt uint32 // a user besides root
}

// maxFloors bounds the users who have a floor.
const maxFloors = 64

// New returns a pool of so much in sum, bytes for instance, with a floor for each user.
func New(all, floor int64) *Pool {
	return &Pool{left: all, floor: floor, taken: map[uint32]int64{}, exempt: uint32(os.Geteuid())}
}

// IsExempt reports whether a user has no bound.
func (p *Pool) IsExempt(user uint32) bool { return p == nil || user == 0 || user == p.exempt }

// Has reports whether a user has something left to take.
func (p *Pool) Has(user uint32) bool {
	if p.IsExempt(user) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has(user)
}

// Take takes n for a user who has something left, which may be less than n. It reports whether the user has.
func (p *Pool) Take(user uint32, n int64) bool {
	if p.IsExempt(user) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.has(user) {
		return false
	}
	p.add(user, n)
	return true
}

// Charge takes n for a user, also if less is left: it was used already.
func (p *Pool) Charge(user uint32, n int64) {
	if p.IsExempt(user) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(user, n)
}

// Spend calls work for a user who has time left, in a pool of nanoseconds, and charges what it takes. It reports
// whether the user has.
func (p *Pool) Spend(user uint32, work func()) bool {
	if !p.Has(user) {
		return false
	}
	began := time.Now()
	work()
	p.Charge(user, int64(time.Since(began)))
	return true
}

// Return gives back what was taken for a user.
func (p *Pool) Return(user uint32, n int64) { p.Charge(user, -n) }

func (p *Pool) has(user uint32) bool {
	taken, isKnown := p.taken[user]
	return taken < p.left || taken < p.floor && (isKnown || len(p.taken) < maxFloors)
}

func (p *Pool) add(user uint32, n int64) {
	p.left -= n
	p.taken[user] += n
	if p.taken[user] == 0 {
		delete(p.taken, user)
	}
}
