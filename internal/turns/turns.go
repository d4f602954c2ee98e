// Package turns does jobs that the processes of several users give cause for, beside whoever asks.
// Users are served in turn: one who asks for much waits for himself. A job that takes long keeps no
// other one waiting.
package turns

import (
	"sync"
	"sync/atomic"
	"time"

	"hallmark/internal/patience"
	"hallmark/internal/quota"
)

// Workers do jobs.
type Workers[J any] struct {
	do      func(J) (helped func())
	wake    *sync.Cond // on mu
	mu      sync.Mutex
	own     lane[J] // of processes of root and of this user
	others  lane[J] // of all other processes
	stopped bool
	running sync.WaitGroup // workers, and jobs
	ended   atomic.Uint64  // jobs
}

const (
	// laneWorkers do jobs of a lane at a time; they mostly wait.
	laneWorkers = 4
	// slowJob is how long a worker waits for its job before it takes the next one.
	slowJob = 50 * time.Millisecond
	// maxSlow bounds the jobs of a lane that nobody waits for, and maxFar those of the helper.
	maxSlow, maxFar = 64, 8
	// maxJobs bounds the jobs that wait of all users but root and this user, who get shares of it, and
	// leastJobs is what each of them may have in any case.
	maxJobs, leastJobs = 1 << 17, 1 << 10
	// maxLate is how many jobs of each of them are still done when the workers stop.
	maxLate = 1 << 12
)

// New starts workers. Their caller stops them. They call do with each job; where a helper has to be
// asked for the rest of it, do returns that, which is done beside the queue.
func New[J any](do func(J) (helped func())) *Workers[J] {
	w := &Workers[J]{do: do}
	w.wake = sync.NewCond(&w.mu)
	w.others.room = quota.New(maxJobs, leastJobs)
	for _, l := range []*lane[J]{&w.own, &w.others} {
		l.slow, l.far = make(chan struct{}, maxSlow), make(chan struct{}, maxFar)
		for range laneWorkers {
			w.running.Go(func() { w.run(l) })
		}
	}
	return w
}

// Ask queues a job of a user. It reports false where too many of that user's wait already.
func (w *Workers[J]) Ask(user uint32, j J) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.laneOf(user).add(user, j) {
		return false
	}
	w.wake.Broadcast() // the workers of both lanes wait
	return true
}

// Stop returns when every job that was asked for is done, or none has ended for a while, or most has
// passed: a job that hangs is not waited for, and one that is only slow is. Jobs that have not begun
// by then are dropped, and so are those of a user for whom very many wait. It reports whether the workers had not been stopped before.
func (w *Workers[J]) Stop(most time.Duration) bool {
	w.mu.Lock()
	again := w.stopped
	w.stopped = true
	w.others.cut(maxLate)
	w.wake.Broadcast()
	w.mu.Unlock()
	if again {
		return false
	}
	w.wait(most)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own.clear()
	w.others.clear()
	return true
}

func (w *Workers[J]) wait(most time.Duration) {
	for until := time.Now().Add(most); ; {
		before := w.ended.Load()
		if patience.Wait(&w.running, min(patience.Short, most)) || w.ended.Load() == before || time.Now().After(until) {
			return
		}
	}
}

func (w *Workers[J]) run(l *lane[J]) {
	for {
		j, ok := w.next(l)
		if !ok {
			return
		}
		done := make(chan struct{})
		w.running.Go(func() {
			defer close(done)
			if helped := w.do(j); helped != nil {
				w.running.Go(func() { w.help(l, helped) })
				return
			}
			w.ended.Add(1)
		})
		l.waitOrLeave(done)
	}
}

// help does the part of a job that a helper is asked for.
func (w *Workers[J]) help(l *lane[J], helped func()) {
	l.far <- struct{}{}
	defer func() { <-l.far }()
	helped()
	w.ended.Add(1)
}

func (w *Workers[J]) next(l *lane[J]) (j J, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(l.turns) == 0 {
		if w.stopped {
			return j, false
		}
		w.wake.Wait()
	}
	return l.take(), true
}
