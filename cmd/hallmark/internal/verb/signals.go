package verb

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Interruptible returns a context that ends with the first Ctrl-C, Ctrl-\, SIGTERM or SIGHUP. It is
// for verbs that look at it. Signals less than a second later are the same wish once more:
// timeout(1) sends SIGTERM twice, and a shell may pass on a Ctrl-C that the terminal has sent
// already. The next one has its usual effect, as all have when over was called and nothing
// else is interruptible.
func Interruptible() (ctx context.Context, over func()) {
	return theSignals.begin(&work{})
}

// Promising is interruptible for work whose result is promised: only a Ctrl-C or Ctrl-\ gives it up,
// a second or more after the signal that ended the context. SIGTERM and SIGHUP never do, however
// many come; SIGKILL does.
func Promising() (ctx context.Context, over func()) {
	return theSignals.begin(&work{promised: true})
}

// signals knows what signals end in good order.
type signals struct {
	came   chan os.Signal
	quit   sync.Once // Ctrl-\ is listened to
	listen sync.Once // the others are
	mu     sync.Mutex
	works  map[*work]bool
	ended  time.Time // when a signal ended works last
}

// work is what a signal ends in good order.
type work struct {
	promised bool
	end      context.CancelFunc // nil when it was called
}

// theSignals are those of this process.
var theSignals = &signals{came: make(chan os.Signal, 16), works: map[*work]bool{}}

// sameWish is how long signals are the same wish as the first one.
const sameWish = time.Second

func (s *signals) begin(w *work) (context.Context, func()) {
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	s.mu.Lock()
	s.works[w] = true
	s.mu.Unlock()
	s.listen.Do(s.start)
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.works, w)
	}
}

// start listens until the process ends.
func (s *signals) start() {
	signal.Notify(s.came, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(s.came, syscall.SIGHUP)
	}
	s.quit.Do(s.startQuit)
}

// ListenToQuit has Ctrl-\ end what is interruptible, or the process.
func ListenToQuit() { theSignals.quit.Do(theSignals.startQuit) }

// startQuit listens to Ctrl-\, at which Go would dump its stacks and return 2. It does so where
// GOTRACEBACK asks for them.
func (s *signals) startQuit() {
	if !signal.Ignored(syscall.SIGQUIT) && os.Getenv("GOTRACEBACK") == "" {
		signal.Notify(s.came, syscall.SIGQUIT)
	}
	go func() {
		for sig := range s.came {
			if s.take(sig, time.Now()) {
				die(sig.(syscall.Signal))
			}
		}
	}()
}

// take ends what a signal ends, and reports whether it ends the process.
func (s *signals) take(sig os.Signal, now time.Time) (fatal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended.IsZero() && now.Sub(s.ended) < sameWish {
		return false
	}
	fatal = true
	for w := range s.works {
		if w.end != nil {
			w.end()
			w.end, s.ended, fatal = nil, now, false
		}
	}
	for w := range s.works {
		fatal = fatal && (sig == os.Interrupt || sig == syscall.SIGQUIT || !w.promised)
	}
	return fatal
}

// die ends the process by a signal, as its parent expects.
func die(sig syscall.Signal) {
	if sig == syscall.SIGQUIT { // by which Go would dump its stacks
		os.Exit(128 + int(sig))
	}
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // a signal that was ignored from the start does nothing
	os.Exit(128 + int(sig))
}

// unbreakable returns standard error as a file that may be written to when nobody reads it any
// more, as behind "2>&1 | head" or when the terminal is closed. Go ends a program that writes
// to such a pipe, if it is descriptor 1 or 2: what was to be written then would be lost.
func unbreakable(f *os.File) *os.File {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return f
	}
	return os.NewFile(fd, f.Name())
}
