package turns

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hallmark/internal/patience"
	"hallmark/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// users who are neither root nor this one.
const busy, second, last = 1<<31 + 1, 1<<31 + 2, 1<<31 + 3

// TestInTurn has two users ask for many jobs, and after them this one and a third.
func TestInTurn(t *testing.T) {
	w := &Workers[uint32]{} // that nobody works for
	w.wake = sync.NewCond(&w.mu)
	for _, user := range []uint32{busy, second} {
		for range 1000 {
			w.Ask(user, user)
		}
	}
	w.Ask(last, last)
	this := uint32(os.Getuid())
	w.Ask(this, this)
	if n := len(w.own.turns); n != 1 {
		t.Fatalf("%d users in the lane of this one, want 1", n)
	}
	if user, ok := w.next(&w.own); !ok || user != this {
		t.Errorf("the first job is of user %d, want this one's", user)
	}
	for i, want := range []uint32{busy, second, last, busy, second, busy} {
		if user, ok := w.next(&w.others); !ok || user != want {
			t.Errorf("turn %d is that of user %d, want %d", i, user, want)
		}
	}
	for i := range 2000 - 5 {
		if _, ok := w.next(&w.others); !ok {
			t.Fatalf("job %d got lost", i)
		}
	}
	if len(w.others.shares)+len(w.others.turns) > 0 {
		t.Errorf("left: %d shares, %d turns", len(w.others.shares), len(w.others.turns))
	}
}

// TestSlowJobs has one user ask for more jobs that hang than there are workers, and another one for
// a job, which is done all the same.
func TestSlowJobs(t *testing.T) {
	hang, done := make(chan struct{}), make(chan uint32, 1)
	w := New(func(user uint32) func() {
		if user == busy {
			<-hang
			return nil
		}
		done <- user
		return nil
	})
	for range 2 * laneWorkers {
		w.Ask(busy, busy)
	}
	w.Ask(second, second)
	if user := <-done; user != second {
		t.Errorf("the job of user %d is done", user)
	}
	close(hang)
	if !w.Stop(patience.Long) || w.Stop(patience.Long) {
		t.Error("the workers are stopped once")
	}
	if w.ended.Load() != 2*laneWorkers+1 {
		t.Errorf("%d jobs have ended", w.ended.Load())
	}
}

// TestHelped has the rest of jobs done beside the queue: Stop waits for it as well.
func TestHelped(t *testing.T) {
	var mu sync.Mutex
	var helped []int
	w := New(func(j int) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			helped = append(helped, j)
		}
	})
	for j := range 3 * maxFar {
		w.Ask(0, j)
	}
	w.Stop(patience.Long)
	mu.Lock()
	defer mu.Unlock()
	if len(helped) != 3*maxFar || w.ended.Load() != 3*maxFar {
		t.Errorf("%d jobs were helped with, %d have ended", len(helped), w.ended.Load())
	}
}

// TestHangingJob stops workers while a job hangs: it is not waited for.
func TestHangingJob(t *testing.T) {
	begun, hang := make(chan struct{}), make(chan struct{})
	w := New(func(int) func() {
		close(begun)
		<-hang
		return nil
	})
	w.Ask(0, 1)
	<-begun
	w.Stop(time.Millisecond)
	if n := w.ended.Load(); n != 0 {
		t.Errorf("%d jobs have ended", n)
	}
	close(hang)
	w.running.Wait()
}

// TestTooManyJobs has one user ask for very much while nothing is done: others still can, and when the workers
// stop, most of it is left.
func TestTooManyJobs(t *testing.T) {
	hang := make(chan struct{})
	var done atomic.Int64
	w := New(func(int) func() { <-hang; done.Add(1); return nil })
	asked := 0
	for w.Ask(busy, 0) && asked <= maxJobs {
		asked++
	}
	if asked > maxJobs/2+maxSlow+laneWorkers {
		t.Errorf("%d jobs of one user wait, want %d", asked, maxJobs/2)
	}
	if !w.Ask(second, 0) || !w.Ask(0, 0) {
		t.Error("others cannot ask")
	}
	stopped := make(chan struct{})
	go func() { w.Stop(patience.Long); close(stopped) }()
	testenv.Await(t, "room for the user", func() bool { return w.Ask(busy, 0) })
	close(hang)
	<-stopped
	if n := int(done.Load()); n < maxLate || n > maxLate+maxSlow+2*laneWorkers+3 {
		t.Errorf("%d jobs were done after so many were asked for, want about %d", n, maxLate)
	}
}
