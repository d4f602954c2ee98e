package patience

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// waits are the looks that are waited for no more and have not ended. Each of them takes a thread. They
// are counted for each user, so a user who hinders many looks hinders none at processes of others.
type waits struct {
	mu     sync.Mutex
	pids   map[int]bool
	users  map[uint32]*backlog
	own    backlog // of root and of this user
	others backlog
	userOf func(pid int) uint32
}

// backlog is what looks that have not ended took.
type backlog struct {
	looks int
	lost  time.Duration // in vain
}

const (
	// maxWaiting bounds the looks at processes of root and of this user, and as many of all others. One of
	// these may have half of what is left.
	maxWaiting = 2000
	// After maxLost of waiting in vain a look gets no more than shortLook, and while manyWait looks
	// have not ended no more than leastLook.
	maxLost   = 2 * time.Second
	shortLook = 20 * time.Millisecond
	manyWait  = 100
	leastLook = 2 * time.Millisecond
	// manyUsers is how many times as much all users together may lose besides root and this one.
	manyUsers = 8
)

var slow = waits{userOf: userOf}

// noUser is who has a process that is gone.
const noUser = ^uint32(0)

// userOf returns whom a process or a thread belongs to, root for EveryProcess.
func userOf(pid int) uint32 {
	if pid == EveryProcess {
		return 0
	}
	info, err := os.Lstat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return noUser
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func isOwn(user uint32) bool { return user == 0 || user == uint32(os.Geteuid()) }

// plan returns how long a look at a process may take that is to take no more than limit, less than 0 if there
// is no time for it. mayLook is false while an earlier look at the process waits.
func (w *waits) plan(pid int, limit time.Duration) (short time.Duration, mayLook bool) {
	w.mu.Lock()
	none, isWaiting := len(w.pids) == 0, w.pids[pid]
	w.mu.Unlock()
	if none || isWaiting {
		return limit, !isWaiting
	}
	user := w.userOf(pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if isOwn(user) {
		return w.own.shorten(limit, 1, maxWaiting), true
	}
	limit = w.others.shorten(limit, manyUsers, maxWaiting)
	if of := w.users[user]; of != nil && limit >= 0 {
		limit = of.shorten(limit, 1, maxWaiting-w.others.looks)
	}
	return limit, true
}

// shorten returns what a look gets of a limit for which most looks may wait, less than 0 if that is nothing.
func (b *backlog) shorten(limit time.Duration, times, most int) time.Duration {
	switch {
	case b.looks >= most:
		return -1
	case b.looks >= times*manyWait:
		return min(limit, leastLook)
	case b.lost >= time.Duration(times)*maxLost:
		return min(limit, shortLook)
	}
	return limit
}

// add counts a look that has not ended, and returns for whom.
func (w *waits) add(pid int, lost time.Duration) (user uint32) {
	user = w.userOf(pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pids == nil {
		w.pids, w.users = map[int]bool{}, map[uint32]*backlog{}
	}
	w.pids[pid] = true
	for _, b := range w.of(user) {
		b.looks++
		b.lost += lost
	}
	return user
}

func (w *waits) remove(pid int, user uint32, lost time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pids, pid)
	for _, b := range w.of(user) {
		b.looks--
		b.lost -= lost
	}
	if of := w.users[user]; of != nil && of.looks == 0 {
		delete(w.users, user)
	}
}

// of returns what looks at processes of a user count for. The caller holds mu.
func (w *waits) of(user uint32) []*backlog {
	if isOwn(user) {
		return []*backlog{&w.own}
	}
	if w.users[user] == nil {
		w.users[user] = new(backlog)
	}
	return []*backlog{&w.others, w.users[user]}
}
