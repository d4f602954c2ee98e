// Package execwatch reports the programs that are executed on this machine, with the identity of their
// files, and the processes that end. BPF programs make the events where they can be loaded, and else perf
// events.
//
// [Start] prepares a [Watch], and [Watch.Run] calls a function for each [Event], in the order of time. An
// event waits for identities that are being read, and not for long.
package execwatch

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/capability"
	"hallmark/internal/perfring"
	"hallmark/internal/reach"
	"hallmark/launch"
	"hallmark/reason"
)

// Backend is a way of knowing what is executed.
type Backend = backend.Backend

// The backends.
const (
	Auto = backend.Auto // BPF where that works, else Perf
	BPF  = backend.BPF  // programs in the kernel, which need CAP_BPF and CAP_PERFMON
	Perf = backend.Perf // records of perf events, which do not have how processes end
)

// Options say what a Watch reports. The zero value has it report every program that is executed
// on this machine.
type Options struct {
	Exits   bool            // report the ends of processes, too
	Libs    bool            // report the libraries that are loaded, too
	Command *launch.Command // report this program alone, which Run releases, and the processes that it starts
	Backend Backend         // BPF, Perf, or what works here when Auto

	// Reuse has an event be overwritten once the function that Run called for it has returned, which may not
	// change it either. Many events come in a second, and each takes a kilobyte.
	Reuse bool

	// Reported is called when all that is known by now has been reported; nil for no call.
	Reported func() error

	NoTaskWork bool // do without what kernels have had since 6.18 (task work): for tests
	// patience is for tests: how long an event waits for identities with perf, 0 for as long as it
	// should.
	patience time.Duration
	ring     int // for tests: see bpf.ExecOptions.Ring
}

// Kind is what a WatchEvent reports.
type Kind uint8

// The kinds of events.
const (
	Executed Kind = iota + 1 // a process executed a program
	Exited                   // a process has ended
	Loaded                   // a process mapped a library
	Missed                   // events found no room
)

var kindNames = [...]string{Executed: "exec", Exited: "exit", Loaded: "load", Missed: "lost"}

// String returns "exec", "exit", "load" or "lost".
func (k Kind) String() string { return kindNames[k] }

// A WatchEvent says that a process executed a program, ended, or loaded a library; or
// that such events were lost. Numbers of processes and users are those of the machine,
// whatever namespace they are in.
type Event struct {
	Kind        Kind
	Time        time.Time
	PID, PPID   int          // PPID is 0 when it is not known
	Started     time.Time    // when the process was, which with PID names it for good; zero when not known
	Name        string       // of the process
	Credentials *Credentials // nil when it is not known
	Cgroup      string       // in the hierarchy of version 2, "" when it is not known
	Container   string       // that the cgroup belongs to, "" for none

	// Program is what runs: of a script, its interpreter. Of a process that ended it is
	// what was executed last, also before the watch began. It is nil if that is not known: with
	// BPF, of a child that has executed nothing itself and was started meanwhile.
	Program *Binary
	// Interpreter is the program's ELF interpreter, nil for none. Library is what was loaded.
	Interpreter, Library *Binary

	// Of an execution:
	File string // what was asked for, as it was given to execve; "" when that is not known
	// Script is File if that names its interpreter ("#!", or binfmt_misc), which is Interp.
	Script, Interp string
	Args           []string // nil when they could not be read
	ArgsCut        bool     // there are more arguments, or the last one is longer

	// Of an end:
	Exit *Exit

	Lost uint64 // events, of a Missed
}

// Credentials is whom a process belongs to.
type Credentials struct{ UID, GID, EUID, EGID uint32 }

// Exit is how a process ended. The life of the Command before it executed its program, which was
// to wait for its release, is left out.
type Exit struct {
	// Status is what wait(2) returns. It is not there with perf events.
	Status *syscall.WaitStatus
	// CPU is what all threads of the process have run, nil when it is not known. Final is
	// not set when nobody has waited for the process soon, or the kernel did not report it: then a
	// little is missing.
	CPU   *time.Duration
	Final bool
	Lived time.Duration // since the process was started; 0 when it is not known
}

// Binary is a file that is executed.
type Binary struct {
	Path    string // as the mount namespace of the process has it
	Cut     bool   // the path's first components are missing
	Deleted bool   // the file had no name any more
	// Elsewhere says that Path leads this process to another file, or to none: the file is in
	// another mount namespace. It is not set of files that only root or this user can have written.
	Elsewhere bool
	ID        buildid.ID
	Reason    reason.Reason // why there is no ID
	// Contested says that another file was reported that claims the same identity and has
	// other content than this one; or that the content of one of them is unknown.
	Contested bool
	// Different says that Contested is set because contents are known to differ.
	Different bool
	Content   buildid.Content // of the file; zero while it is unknown

	key     reach.Key      // of the file
	seen    reach.Sighting // of the file that was reached, if it was
	pending evidence       // until the event is reported: it may learn its content
	trusted bool           // only root or this user can have written the file
}

// Stats count what a Watch reported and what it could not report.
type Stats struct {
	Backend      Backend
	Execs, Exits uint64
	Loads        uint64
	Lost         uint64 // events that found no room
	Uncertain    uint64 // events that may be lost, at most: programs were preempted (Linux 7.0)
	Unfollowed   uint64 // processes that were not followed, because too many ran at once
	Unidentified uint64 // programs and interpreters without an identity
	Disagreed    uint64 // files that have another identity than the kernel read from memory
	Malformed    uint64 // records that could not be read
	Contested    uint64 // programs, interpreters and libraries whose identity other files claim
	Forgotten    uint64 // build IDs: there were too many to remember which files claimed them
	Reduced      []string
}

// Watch says what is executed and what ends, as it happens. Its methods are for one
// goroutine.
type Watch struct {
	opts  Options
	queue *watchQueue
	teller
	stats   Stats
	command []int // pidfd of the command
}

// teller is a way of knowing: bpfWatch and perfWatch.
type teller interface {
	// begin has what happens from now on reported.
	begin() error
	// descriptors are readable when there is something to read.
	descriptors() []int
	// pending reports whether one of the rings of perf events among them is due.
	pending() bool
	// pause says how long to wait at most: perfring.Forever may do where nothing is held back.
	pause(idle bool) (most time.Duration, err error)
	// read puts what was reported into the queue, and returns the time from before which all is
	// there (ns, CLOCK_MONOTONIC).
	read() (uint64, error)
	// halt ends the reports. Those from before can still be read.
	halt()
	count(*Stats)
	close() error
}

// Start prepares a Watch. When the error is nil the caller must Close the Watch.
func Start(o Options) (*Watch, error) {
	w := &Watch{opts: o, queue: newWatchQueue()}
	if err := w.start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Watch) start() error {
	if err := w.choose(); err != nil {
		return err
	}
	if c := w.opts.Command; c != nil {
		fd, err := unix.PidfdOpen(c.PID(), 0)
		if err != nil {
			return fmt.Errorf("process %d: %w", c.PID(), err)
		}
		w.command = []int{fd}
	}
	return nil
}

// choose takes the backend that is demanded, or the best one that works.
func (w *Watch) choose() error {
	switch w.opts.Backend {
	case backend.Perf:
		return w.usePerf()
	case backend.BPF:
		if err := w.useBPF(); err != nil {
			return fmt.Errorf("%w, or use 'exec --backend perf'", err)
		}
		return nil
	case backend.Stackmap:
		return errors.New("the backend stackmap samples and watches nothing: use auto, bpf or perf")
	}
	err := w.useBPF()
	if err == nil || backend.IsShortage(err) { // perf would run out of files as well, later and in silence
		return err
	}
	if perfErr := w.usePerf(); perfErr != nil {
		return perfErr
	}
	if capability.LackingForBPF() == "" { // others know that they are ordinary users
		w.stats.Reduced = append(w.stats.Reduced, "BPF programs: "+backend.WhyNot(err))
	}
	return nil
}

// Run calls each for every event in the order of time, until ctx is done, the command has
// ended, or each returns an error, which it returns. The event belongs to each, but for Options.Reuse.
func (w *Watch) Run(ctx context.Context, each func(*Event) error) error {
	wait, err := perfring.NewWaiter(ctx, w.descriptors(), w.command, w.pending)
	if err != nil {
		return err
	}
	defer wait.Close()
	if err := w.begin(); err != nil {
		return err
	}
	if c := w.opts.Command; c != nil {
		if err := c.Release(); err != nil {
			return err
		}
	}
	for over := false; !over; {
		most, err := w.pause(w.queue.empty())
		if err != nil {
			return err
		}
		if over, err = wait.Wait(most, 0); err != nil {
			return err
		}
		if err := w.round(each); err != nil {
			return err
		}
	}
	w.halt()
	return w.rest(each)
}

// round says what is there to be reported.
func (w *Watch) round(each func(*Event) error) error {
	until, err := w.read()
	if err != nil {
		return err
	}
	return w.report(until, each)
}

// report hands on the events from before a time that are complete.
func (w *Watch) report(before uint64, each func(*Event) error) error {
	for n := 0; ; n++ {
		held := w.queue.next(before)
		if held == nil && n > 0 && w.opts.Reported != nil {
			return w.opts.Reported()
		}
		if held == nil {
			return nil
		}
		w.queue.claims.judge(held.Event)
		w.tally(held.Event)
		if err := each(held.Event); err != nil {
			return err
		}
		if r, ok := held.missing.(reusable); ok && w.opts.Reuse {
			r.reuse()
		}
	}
}

// rest says what happened before the end: what is not complete has its time to become so.
func (w *Watch) rest(each func(*Event) error) error {
	end := perfring.Monotonic() + uint64(slack)
	for {
		until, err := w.read()
		if err != nil {
			return err
		}
		if err := w.report(until, each); err != nil || until > end && w.queue.empty() {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *Watch) tally(ev *Event) {
	switch ev.Kind {
	case Executed:
		w.stats.Execs++
	case Exited:
		w.stats.Exits++
		return
	case Loaded:
		w.stats.Loads++
	case Missed:
		w.stats.Lost += ev.Lost
	}
	for _, b := range []*Binary{ev.Program, ev.Interpreter, ev.Library} {
		switch {
		case b == nil:
		case b.ID.IsZero():
			w.stats.Unidentified++
		case b.Contested:
			w.stats.Contested++
		}
	}
}

// Stats returns what was counted so far.
func (w *Watch) Stats() Stats {
	s := w.stats
	s.Forgotten = w.queue.claims.forgotten
	if w.teller != nil {
		w.count(&s)
	}
	return s
}

// Close ends the reports. The command, if there is one, goes on.
func (w *Watch) Close() error {
	var errs []error
	if w.teller != nil {
		errs = append(errs, w.teller.close())
	}
	for _, fd := range w.command {
		errs = append(errs, syscall.Close(fd))
	}
	w.teller, w.command = nil, nil
	return errors.Join(errs...)
}
