package patience

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// TestWithin looks at a process that lets nobody look at it.
func TestWithin(t *testing.T) {
	const pid = 1 << 30
	release := make(chan struct{})
	if Within(pid, time.Millisecond, func() { <-release }) {
		t.Error("it has not ended")
	}
	if Within(pid, time.Hour, func() { t.Error("it is looked at again") }) {
		t.Error("it is looked at again")
	}
	if !Within(pid+1, time.Hour, func() {}) {
		t.Error("others are not looked at")
	}
	close(release)
	testenv.Await(t, "the end of the look", func() bool { return Within(pid, time.Hour, func() {}) })
}

// TestBusy wants a look that is late to be waited for as long as looks at this process are late.
func TestBusy(t *testing.T) {
	const pid = 1<<30 + 16
	was, ended := lookBeside, make(chan struct{})
	defer func() { lookBeside = was }()
	lookBeside = func() { <-ended }
	late := func() {
		time.Sleep(10 * time.Millisecond)
		close(ended)
	}
	if o := Try(pid, time.Nanosecond, late); o != Ended {
		t.Errorf("a look as late as others: %v", o)
	}
}

// TestInTimeOr wants what comes too late to be let go of, and nothing else.
func TestInTimeOr(t *testing.T) {
	const pid = 1<<30 + 8
	dropped := make(chan int, 2)
	look := func(wait <-chan struct{}) func() (int, error) {
		return func() (int, error) {
			<-wait
			return 7, nil
		}
	}
	now, later := make(chan struct{}), make(chan struct{})
	close(now)
	drop := func(v int) { dropped <- v }
	if v, err := InTimeOr(pid, time.Hour, look(now), drop); v != 7 || err != nil || len(dropped) > 0 {
		t.Errorf("%d, %v, %d were let go of", v, err, len(dropped))
	}
	if v, err := InTimeOr(pid, time.Millisecond, look(later), drop); v != 0 || !errors.Is(err, ErrSilent) {
		t.Errorf("%d, %v, want nothing", v, err)
	}
	close(later)
	if v := <-dropped; v != 7 {
		t.Errorf("%d was let go of", v)
	}
}

// TestTryMoving waits for a look that makes steps, for some time, and for one that is held up no longer.
func TestTryMoving(t *testing.T) {
	const pid = 1<<30 + 2
	step := func(steps *atomic.Int64, n int) {
		for range n {
			steps.Add(1)
			time.Sleep(stepTime / 4)
		}
	}
	var some, many, held atomic.Int64
	if o := TryMoving(pid, time.Millisecond, time.Hour, &some, func() { step(&some, 10) }); o != Ended {
		testenv.Lack(t, "a look that makes steps was not waited for: the machine is busy")
	}
	end, ended := make(chan struct{}), make(chan struct{})
	o := TryMoving(pid, time.Millisecond, 2*stepTime, &many, func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				step(&many, 1)
			}
		}
	})
	close(end)
	if o != Moving {
		testenv.Lack(t, "a look with too much to look at: %v, want %v", o, Moving)
	}
	<-ended
	release := make(chan struct{})
	if o := TryMoving(pid+1, stepTime, time.Hour, &held, func() { held.Add(1); <-release }); o != Silent {
		t.Errorf("a look that is held up: %v, want %v", o, Silent)
	}
	close(release)
}

// TestNoTime wants a look that may take no time to be called, and not to be waited for.
func TestNoTime(t *testing.T) {
	for range 100 {
		called := make(chan struct{})
		if Within(1<<30, 0, func() { close(called) }) {
			t.Fatal("a look was waited for")
		}
		<-called
		testenv.Await(t, "the end of the look", func() bool {
			slow.mu.Lock()
			defer slow.mu.Unlock()
			return !slow.pids[1<<30]
		})
	}
}

// TestShares has one user use up what is for that user, and several what is for all.
func TestShares(t *testing.T) {
	var s Shares
	if s.Take(0) == nil || s.Take(uint32(os.Geteuid())) == nil {
		t.Error("looks at processes of root or of this user are bounded")
	}
	use := func(user uint32, most time.Duration) (used time.Duration) {
		for used < most {
			if s.Take(user) == nil {
				break
			}
			s.Spend(user, userShare/4)
			used += userShare / 4
		}
		return used
	}
	if used := use(1001, time.Hour); used < userShare || used > 2*userShare {
		t.Errorf("one user used %v, want %v", used, userShare)
	}
	if used := use(1002, time.Hour); used < userShare {
		t.Errorf("another user used %v, want %v", used, userShare)
	}
	all := 2 * userShare
	for user := uint32(2000); user < 3000; user++ {
		all += use(user, time.Hour)
	}
	if all > 2*allShares {
		t.Errorf("all used %v, want %v", all, allShares)
	}
	s.all.asOf = s.all.asOf.Add(-shareRefill * allShares)
	s.users[1001].asOf = s.users[1001].asOf.Add(-shareRefill * allShares)
	if s.Take(1001) == nil {
		t.Error("time does not come back")
	}
}

// TestWaitsAreOfUsers has very many looks at processes of one user not end, then at those of several: looks at
// those of root and of a modest user keep their time.
func TestWaitsAreOfUsers(t *testing.T) {
	const greedy, modest = 1 << 30, 1<<30 + 1
	own := uint32(os.Geteuid())
	users := map[int]uint32{} // by their processes
	w := &waits{userOf: func(pid int) uint32 { return users[pid] }}
	newPID := func(user uint32) int {
		pid := len(users) + 1
		users[pid] = user
		return pid
	}
	planOf := func(user uint32) time.Duration {
		short, mayLook := w.plan(newPID(user), time.Minute)
		if !mayLook {
			t.Errorf("a look at user %d's waits", user)
		}
		return short
	}
	hinder := func(user uint32, looks int, lost time.Duration) (end func()) {
		first := len(users) + 1
		for range looks {
			w.add(newPID(user), lost)
		}
		return func() {
			for i := range looks {
				w.remove(first+i, user, lost)
			}
		}
	}
	for _, c := range []struct {
		looks int
		lost  time.Duration
		want  time.Duration
	}{
		{1, maxLost / 2, time.Minute},
		{4, maxLost / 2, shortLook},
		{manyWait, time.Millisecond, leastLook},
		{maxWaiting/2 + 1, 0, -1},
	} {
		end := hinder(greedy, c.looks, c.lost)
		if got := planOf(greedy); got != c.want {
			t.Errorf("after %d looks of %v a further one gets %v, want %v", c.looks, c.lost, got, c.want)
		}
		for _, user := range []uint32{modest, own, 0} {
			if got := planOf(user); c.looks < manyUsers*manyWait && got != time.Minute || got < 0 || user != modest && got != time.Minute {
				t.Errorf("after %d looks at another user's of %v one at user %d's gets %v", c.looks, c.lost, user, got)
			}
		}
		if end(); planOf(greedy) != time.Minute || len(w.users) != 0 || w.others != (backlog{}) {
			t.Errorf("%d looks ended, and count: %+v", c.looks, w.others)
		}
	}
	for user := uint32(greedy + 2); user < greedy+2+manyUsers; user++ {
		defer hinder(user, 1, 2*maxLost)()
	}
	if got := planOf(modest); got != shortLook {
		t.Errorf("after looks at many users' one gets %v, want %v", got, shortLook)
	}
	if got := planOf(own); got != time.Minute {
		t.Errorf("after looks at many users' one at this user's gets %v", got)
	}
}

// TestNoTimeIsNotSilent wants a look that had too little time not to be one at a process that hinders it.
func TestNoTimeIsNotSilent(t *testing.T) {
	const pid = 1<<30 + 20
	release := make(chan struct{})
	defer close(release)
	for i := range manyWait {
		Within(pid+i, 0, func() { <-release })
	}
	if o := Try(pid+manyWait, time.Hour, func() { <-release }); o != NoTime {
		t.Errorf("a look with no more than %v: %v, want %v", leastLook, o, NoTime)
	}
	if _, err := InTime(pid+manyWait+1, time.Hour, func() (int, error) { <-release; return 0, nil }); !errors.Is(err, ErrNoTime) || !errors.Is(err, ErrSilent) {
		t.Errorf("such a look fails as %v", err)
	}
	if _, err := InTime(pid+manyWait+1, time.Hour, func() (int, error) { return 0, nil }); errors.Is(err, ErrNoTime) || !errors.Is(err, ErrSilent) {
		t.Errorf("a look at a process that an earlier one waits for fails as %v", err)
	}
	if o := Try(os.Getpid(), time.Hour, func() {}); o != Ended {
		t.Errorf("a look at this process: %v", o)
	}
}
