package turns

import (
	"os"
	"time"

	"hallmark/internal/quota"
)

// lane has jobs of several users. Workers.mu guards all but the channels.
type lane[J any] struct {
	shares map[uint32][]J // by user, none of them empty
	turns  []uint32       // users who have a share, the next one first
	room   *quota.Pool    // for the jobs that wait
	slow   chan struct{}  // has room for each job that nobody waits for
	far    chan struct{}  // has room for each job that a helper works at
}

// add puts a job behind the others of its user, if that user has room left for it.
func (l *lane[J]) add(user uint32, j J) bool {
	if !l.room.Take(user, 1) {
		return false
	}
	if l.shares == nil {
		l.shares = map[uint32][]J{}
	}
	if len(l.shares[user]) == 0 {
		l.turns = append(l.turns, user)
	}
	l.shares[user] = append(l.shares[user], j)
	return true
}

// take takes out the first job of the user whose turn it is. There has to be one.
func (l *lane[J]) take() J {
	user := l.turns[0]
	share := l.shares[user]
	l.turns = l.turns[1:]
	l.room.Return(user, 1)
	if len(share) == 1 {
		delete(l.shares, user)
		return share[0]
	}
	l.shares[user], l.turns = share[1:], append(l.turns, user)
	return share[0]
}

// cut drops the jobs of each user but the first ones.
func (l *lane[J]) cut(most int) {
	for user, share := range l.shares {
		if more := len(share) - most; more > 0 {
			l.room.Return(user, int64(more))
			l.shares[user] = share[:most]
		}
	}
}

func (l *lane[J]) clear() { l.shares, l.turns = nil, nil }

// laneOf returns the lane of a user. The others cannot keep the workers busy that are for root and
// for this user.
func (w *Workers[J]) laneOf(user uint32) *lane[J] {
	if user == 0 || int64(user) == int64(os.Geteuid()) {
		return &w.own
	}
	return &w.others
}

// waitOrLeave waits for a job, but no longer than a short while if there is room to leave it.
func (l *lane[J]) waitOrLeave(done chan struct{}) {
	timer := time.NewTimer(slowJob)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	select {
	case l.slow <- struct{}{}:
		go func() {
			<-done
			<-l.slow
		}()
	case <-done:
	}
}
