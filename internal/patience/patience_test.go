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

// TestWithinMoving waits for a look that makes steps, for some time, and for one that is held up no longer.
func TestWithinMoving(t *testing.T) {
	const pid = 1<<30 + 2
	step := func(steps *atomic.Int64, n int) {
		for range n {
			steps.Add(1)
			time.Sleep(stepTime / 4)
		}
	}
	var some, many, held atomic.Int64
	if ok, _ := WithinMoving(pid, time.Millisecond, time.Hour, &some, func() { step(&some, 10) }); !ok {
		testenv.Lack(t, "a look that makes steps was not waited for: the machine is busy")
	}
	end, ended := make(chan struct{}), make(chan struct{})
	ok, isMoving := WithinMoving(pid, time.Millisecond, 2*stepTime, &many, func() {
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
	if ok || !isMoving {
		testenv.Lack(t, "a look with too much to look at: ended %v, moving %v", ok, isMoving)
	}
	<-ended
	release := make(chan struct{})
	if ok, isMoving := WithinMoving(pid+1, stepTime, time.Hour, &held, func() { held.Add(1); <-release }); ok || isMoving {
		t.Errorf("a look that is held up: ended %v, moving %v", ok, isMoving)
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
			slow.Lock()
			defer slow.Unlock()
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
