package patience

import (
	"cmp"
	"os"
	"sync"
	"time"
)

// Shares bounds how long somebody who has other work waits for looks at processes of other users, who can
// make each look take long. It does not bound looks at those of root and of this user. The zero value
// is ready.
type Shares struct {
	// User is what looks at processes of one user may take at once, and All those at all; 0: half a second, and
	// two seconds.
	User, All time.Duration

	mu    sync.Mutex
	users map[uint32]*share
	all   share
}

// share is the time that was spent on looks, which is forgotten slowly.
type share struct {
	spent time.Duration
	asOf  time.Time
}

const (
	userShare = 500 * time.Millisecond
	allShares = 2 * time.Second
	// shareRefill is how much longer it takes to get time back than to lose it.
	shareRefill = 20
	// maxShares bounds the users that are remembered.
	maxShares = 4096
)

// Take begins a look at a process of a user. It returns what ends the look, nil if there is no time left
// for it.
func (s *Shares) Take(user uint32) (end func()) {
	if user == 0 || user == uint32(os.Geteuid()) {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	of := s.users[user]
	if of == nil {
		if s.users == nil || len(s.users) >= maxShares {
			s.users = map[uint32]*share{}
		}
		of = new(share)
		s.users[user] = of
	}
	if of.after(now) >= cmp.Or(s.User, userShare) || s.all.after(now) >= cmp.Or(s.All, allShares) {
		return nil
	}
	return func() { s.spend(of, time.Since(now)) }
}

// Spend has a user spend a time: for tests.
func (s *Shares) Spend(user uint32, took time.Duration) {
	if s.Take(user) != nil {
		s.spend(s.users[user], took)
	}
}

func (s *Shares) spend(of *share, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.spent, s.all.spent = of.spent+took, s.all.spent+took
}

// after returns what is not forgotten at a time of what was spent.
func (s *share) after(now time.Time) time.Duration {
	if !s.asOf.IsZero() {
		s.spent = max(0, s.spent-now.Sub(s.asOf)/shareRefill)
	}
	s.asOf = now
	return s.spent
}
