package aside

import (
	"encoding/gob"
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// helper is a process that answers.
type helper struct {
	process *os.Process
	socket  *os.File
	out     *gob.Encoder

	mu      sync.Mutex // of what follows, and of out
	number  uint64
	waiting map[uint64]chan *reply
	files   int // that are kept open
	late    int // answers that are not waited for any more
	broken  bool
}

// reply is an answer and who gave it.
type reply struct {
	answer
	helper *helper
}

const (
	// pingTime is how long a helper may take to say that it is there.
	pingTime = 250 * time.Millisecond
	// idleTime is for how long a helper stays that nobody asks.
	idleTime = 100 * time.Millisecond
	// maxLeft bounds the helpers that are left behind, each with the memory of a small process.
	maxLeft = 4
	// maxLate bounds the questions that a helper still works at when nobody waits for the
	// answer: each takes a thread.
	maxLate = 32
)

// pool has the one helper of this process.
var pool struct {
	sync.Mutex
	helper *helper // nil when there is none now
	users  int     // that wait for answers
	idle   *time.Timer
	left   int // helpers that were given up and have not ended
}

var started atomic.Int64

// Started returns how many helpers this process has had, for tests.
func Started() int64 { return started.Load() }

// take returns the helper, and starts one if there is none. The caller gives it back.
func take() (*helper, error) {
	pool.Lock()
	defer pool.Unlock()
	if pool.idle != nil {
		pool.idle.Stop()
	}
	if h := pool.helper; h != nil && h.isFull() {
		pool.helper = nil
		pool.left++
		h.leave()
	}
	if pool.helper == nil {
		if pool.left >= maxLeft {
			return nil, errSilent
		}
		h, err := start()
		if err != nil {
			return nil, err
		}
		pool.helper = h
	}
	pool.users++
	return pool.helper, nil
}

// giveBack ends the helper after a while, if nobody else asks and nothing is open in there.
func giveBack() {
	pool.Lock()
	defer pool.Unlock()
	pool.users--
	rest()
}

// Hold has a helper stay until release is called, once it was started: to start one may take some
// tenths of a second on a busy machine.
func Hold() (release func()) {
	pool.Lock()
	defer pool.Unlock()
	pool.users++
	return sync.OnceFunc(giveBack)
}

// rest has the helper end after a while, unless it is used. The caller holds pool.
func rest() {
	if pool.idle != nil {
		pool.idle.Stop()
	}
	if h := pool.helper; h != nil && pool.users == 0 && !h.isKeeping() {
		pool.idle = time.AfterFunc(idleTime, stopIdle)
	}
}

func stopIdle() {
	pool.Lock()
	defer pool.Unlock()
	if h := pool.helper; h != nil && pool.users == 0 && !h.isKeeping() {
		pool.helper = nil
		pool.left++ // until it has ended
		h.leave()
	}
}

// abandon gives a helper up that does not answer at all.
func abandon(h *helper) {
	pool.Lock()
	defer pool.Unlock()
	if pool.helper == h {
		pool.helper = nil
		pool.left++
	}
	h.leave()
	_ = h.process.Kill() // it may be in a state in which that does nothing
}

// start starts a helper. It has none of this process's standard streams: whoever waits for
// their end must not wait for a helper that was left behind.
func start() (*helper, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil { // so that closing it ends a read
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "answers"), os.NewFile(uintptr(ends[1]), "questions")
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName}, ExtraFiles: []*os.File{theirs},
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // Ctrl-C is for who asks
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	started.Add(1)
	h := &helper{process: cmd.Process, socket: ours, out: gob.NewEncoder(ours), waiting: map[uint64]chan *reply{}}
	go h.read()
	go func() {
		_ = cmd.Wait() // how it ended says nothing
		pool.Lock()
		defer pool.Unlock()
		if pool.helper == h {
			pool.helper = nil
		} else {
			pool.left--
		}
	}()
	return h, nil
}

// read hands answers to their callers. A late answer has the helper close what it
// opened.
func (h *helper) read() {
	in := gob.NewDecoder(h.socket)
	for {
		r := &reply{helper: h}
		if in.Decode(&r.answer) != nil {
			break
		}
		h.mu.Lock()
		waits, ok := h.waiting[r.Number]
		delete(h.waiting, r.Number)
		if !ok {
			h.late--
			_ = h.out.Encode(&question{Number: r.Number})
		}
		h.mu.Unlock()
		if ok {
			waits <- r // there is room
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
	for number, waits := range h.waiting {
		delete(h.waiting, number)
		close(waits)
	}
	h.socket.Close()
}

// ask sends a question and waits for the answer for some time.
func (h *helper) ask(q question, most time.Duration) (*reply, error) {
	waits := make(chan *reply, 1)
	h.mu.Lock()
	if h.broken {
		h.mu.Unlock()
		return nil, errEnded
	}
	h.number++
	q.Number = h.number
	h.waiting[q.Number] = waits
	_ = h.socket.SetWriteDeadline(time.Now().Add(most))
	err := h.out.Encode(&q)
	h.mu.Unlock()
	if err != nil {
		abandon(h)
		return nil, errEnded
	}
	due := time.Now().Add(most)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case r := <-waits:
		return h.accept(r)
	case <-timer.C:
	}
	r, ok, busy := h.awaitBusy(waits, due)
	if ok {
		return h.accept(r)
	}
	h.mu.Lock()
	_, still := h.waiting[q.Number]
	if delete(h.waiting, q.Number); still {
		h.late++
	}
	h.mu.Unlock()
	if !still {
		return h.accept(<-waits)
	}
	if busy {
		return nil, ErrBusy
	}
	return nil, errSilent
}

func (h *helper) accept(r *reply) (*reply, error) {
	switch {
	case r == nil:
		return nil, errEnded
	case r.Failed:
		return nil, &RemoteError{r.Text, r.Errno}
	}
	return r, nil
}

// askOrLeave is ask, and gives the helper up when it answers nothing at all.
func (h *helper) askOrLeave(q question, most time.Duration) (*reply, error) {
	r, err := h.ask(q, most)
	if errors.Is(err, ErrUnanswered) && err != ErrBusy && !h.isThere() {
		abandon(h)
	}
	return r, err
}

// isThere reports whether the helper answers anything, or would if it had the time.
func (h *helper) isThere() bool {
	_, err := h.ask(question{Name: pingName}, pingTime)
	return err == nil || err == ErrBusy
}

// isFull reports whether so many questions were given up that another helper is to be had.
func (h *helper) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken || h.late >= maxLate
}

func (h *helper) isKeeping() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.files > 0
}

// leave has the helper end when it can: it reads the end of its questions.
func (h *helper) leave() { h.socket.Close() }

// keep notes a file that is open in the helper.
func (h *helper) keep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files++
}

// forget has the helper close a file. Nothing is waited for.
func (h *helper) forget(number uint64) {
	h.mu.Lock()
	h.files--
	if !h.broken {
		_ = h.socket.SetWriteDeadline(time.Now().Add(pingTime))
		_ = h.out.Encode(&question{Number: number})
	}
	h.mu.Unlock()
	pool.Lock()
	defer pool.Unlock()
	rest()
}
