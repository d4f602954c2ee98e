package capture

import (
	"os"
)

// lane has jobs of several users' processes, who are served in turn: who asks for much waits
// for himself. resolver.mu guards all but the channels.
type lane struct {
	shares map[uint32][]job // by user, none of them empty
	turns  []uint32         // users who have a share, the next one first
	slow   chan struct{}    // has room for each job that nobody waits for
	far    chan struct{}    // has room for each job that a helper works at
}

// add puts a job behind the others of its user.
func (l *lane) add(owner uint32, j job) {
	if l.shares == nil {
		l.shares = map[uint32][]job{}
	}
	if len(l.shares[owner]) == 0 {
		l.turns = append(l.turns, owner)
	}
	l.shares[owner] = append(l.shares[owner], j)
}

// take takes out the first job of the user whose turn it is. There has to be one.
func (l *lane) take() job {
	owner := l.turns[0]
	share := l.shares[owner]
	l.turns = l.turns[1:]
	if len(share) == 1 {
		delete(l.shares, owner)
		return share[0]
	}
	l.shares[owner], l.turns = share[1:], append(l.turns, owner)
	return share[0]
}

func (l *lane) clear() { l.shares, l.turns = nil, nil }

// laneOf returns the lane of a user's processes. The others cannot keep the workers busy that
// are for root and for this user.
func (r *resolver) laneOf(owner uint32) *lane {
	if owner == 0 || int64(owner) == int64(os.Geteuid()) {
		return &r.own
	}
	return &r.others
}
