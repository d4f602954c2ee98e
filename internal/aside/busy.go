package aside

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// unanswered says why there is no answer. Each is [ErrUnanswered].
type unanswered string

func (u unanswered) Error() string { return string(u) }

// Is makes every reason ErrUnanswered.
func (u unanswered) Is(target error) bool { return target == ErrUnanswered }

// Reasons of no answer.
const (
	errSilent = unanswered("no answer in time: a file system's server is silent")
	errEnded  = unanswered("no answer: the helper process ended")
	errNobody = unanswered("no answer: this process has no helper")
	// ErrBusy says that the helper had work and too little CPU time for it.
	ErrBusy = unanswered("no answer in time: the machine is too busy")
)

const (
	// maxBusy is how long this process waits, for all questions together, when the helper has too
	// little CPU time: the machine is busy, which says nothing about a file system. Then it has to
	// wait refill times as long until it does so again.
	maxBusy = 10 * time.Second
	// busyStep is the time between two looks at the helper.
	busyStep = 50 * time.Millisecond
)

// isRunnable reports whether a thread of the process runs, or would if it had a CPU. A thread
// that waits for a file system sleeps.
func isRunnable(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, t := range threads {
		stat, err := os.ReadFile(dir + "/" + t.Name() + "/stat")
		if err != nil {
			continue
		}
		// PID (NAME) STATE ..., and NAME may have parentheses
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; bytes.HasPrefix(state, []byte(" R ")) {
			return true
		}
	}
	return false
}

// awaitBusy waits on for an answer that is overdue, as long as the helper is runnable. It looks
// again after the helper slept, and after this process itself was late: the answer may be on its
// way. Busy reports whether the helper was runnable to the end.
func (h *helper) awaitBusy(waits <-chan *reply, due time.Time) (r *reply, ok, busy bool) {
	spare := time.Since(due) > busyStep
	for {
		busy = isRunnable(h.process.Pid)
		if !busy && !spare {
			return nil, false, false
		}
		if !waitBusy(time.Now()) {
			return nil, false, busy
		}
		spare = busy
		timer := time.NewTimer(busyStep)
		select {
		case r := <-waits:
			timer.Stop()
			return r, true, false
		case <-timer.C:
		}
	}
}

// waitBusy reports whether a busy machine is worth waiting for.
func waitBusy(now time.Time) bool {
	waits.mu.Lock()
	defer waits.mu.Unlock()
	if now.Sub(waits.busyUntil) > refill*maxBusy {
		waits.busyUntil = now.Add(maxBusy)
	}
	return now.Before(waits.busyUntil)
}
