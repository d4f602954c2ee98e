// Package capture records which code runs on this machine. Each frame of every stack
// has the identity of the file that it came from, or the reason why not.
//
// A program that records calls launch.ExecWhenReady first in main: a helper process looks at files on
// FUSE and networks. Without that call these files have the reason file-unresponsive.
//
// Start opens the events and takes stock of what runs already, Run records, and
// Finish turns what was seen into a profile. All processes, some of them, or one
// Command can be recorded.
package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/kernelcode"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/rewrites"
	"hallmark/internal/unwindtables"
	"hallmark/launch"
	"hallmark/perfdata"
	"hallmark/procmap"
	"hallmark/profile"
)

// Session is a recording. Its methods are for one goroutine.
type Session struct {
	opts     Options
	sampler  sampler
	tally    *tally
	watch    []int // pidfds of the processes and the command that are recorded
	started  time.Time
	elapsed  time.Duration // from the start of the samples to their end
	finished bool
}

// sampler is a way of taking samples: perfSampler, bpfSampler and stackmapSampler.
// Its methods are called in this order, and close in any case.
type sampler interface {
	// openAll opens the events of everything, openProcess those of a process and
	// openCommand those of a command, once it executes its program. They do not run yet.
	openAll() error
	openProcess(pid int) error
	openCommand(c *launch.Command) error
	// prepare takes stock of what runs already.
	prepare(ctx context.Context) error
	// begin starts the samples, but those of a command, which start with it.
	begin() error
	// descriptors are readable when there is something to do in a round.
	descriptors() []int
	// pending reports whether one of the rings of perf events behind them is due.
	pending() bool
	// due returns after how long a round is due in any case: perfring.Forever if none is.
	due() time.Duration
	// round handles what the kernel emitted since the last one.
	round() error
	// halt ends the samples, finish handles what is left of them.
	halt()
	finish()
	close() error
}

// tally is what samples are counted in, whoever takes them.
type tally struct {
	objects *objects.Set
	kernel  *kernelcode.Kernel
	inside  *objects.Object // all that is in the kernel
	cgroups *procfs.Cgroups
	stacks  *stacks
	times   *timeline            // nil when they are not wanted
	tables  *unwindtables.Supply // nil where callers are not found by unwind tables
	stats   Stats
	looks   patience.Shares // at processes, that samples wait for
	// rewrites knows the pages of files that the sampled processes have rewritten.
	rewrites *rewrites.Watcher
	// perSample is what a sample stands for when its event does not measure time.
	perSample time.Duration
}

// newTally makes what the samples of a backend are counted in.
func (s *Session) newTally(b Backend, roots []procfs.CgroupRoot) *tally {
	o := objects.New()
	s.tally = &tally{
		objects:   o,
		kernel:    kernelcode.New(s.opts.CacheDir),
		inside:    o.Kernel(),
		cgroups:   procfs.NewCgroups(roots),
		stacks:    newStacks(),
		stats:     Stats{Backend: b},
		perSample: time.Second / time.Duration(s.opts.Frequency),
	}
	s.tally.rewrites = rewrites.New(o, &s.tally.looks)
	if s.opts.Timeline {
		s.tally.times = newTimeline()
		s.tally.stacks.most, s.tally.stacks.fixed = maxCounts, true
	}
	return s.tally
}

// inKernel returns the place of an address of the kernel.
func (t *tally) inKernel(ip addr.Abs) place { return place{t.inside, uint64(ip)} }

// original returns the place in a file that code of a process was copied from, if it was.
func (t *tally) original(p *process, a addr.Abs) (place, bool) {
	o, at, ok := t.rewrites.Original(&p.Process, &p.origins, a)
	return place{o, at}, ok
}

// add counts samples of a stack, found in some way, that were taken at a time (ns,
// CLOCK_MONOTONIC).
func (t *tally) add(places []place, walk profile.Walk, labels profile.Labels, n total, at uint64) {
	t.rewrites.See(labels.PID, labels.Process, at)
	t.stats.Coarse += uint64(t.stacks.add(places, walk, labels, n))
	t.note(n, at)
}

// addAgain is add for a stack that was counted before, by its index. It reports whether it did so.
func (t *tally) addAgain(stack uint32, labels profile.Labels, n total, at uint64) bool {
	if !t.stacks.addAgain(stack, labels, n) {
		return false
	}
	t.rewrites.See(labels.PID, labels.Process, at)
	t.note(n, at)
	return true
}

// note notes samples that were counted.
func (t *tally) note(n total, at uint64) {
	t.stats.Samples += uint64(n.samples)
	if t.times != nil {
		t.times.add(t.stacks.latest, at)
		t.stats.Untimed = t.times.cut
	}
}

// throttle takes the news that an event was held back, or goes on.
func (t *tally) throttle(r *perfdata.Throttle) {
	if !r.Ended {
		t.stats.Throttled++
	}
}

// Start opens the events and takes stock of the processes that run. When the
// error is nil the caller must Close the Session. When ctx is done before that, Start takes no further
// process into its stock, and returns the error of ctx. The Session outlives ctx.
func Start(ctx context.Context, opts Options) (*Session, error) {
	if opts.Frequency == 0 {
		opts.Frequency = DefaultFrequency
	}
	if most := perfring.MaxFrequency(); opts.Frequency > most {
		return nil, fmt.Errorf("a frequency of %d Hz is above kernel.perf_event_max_sample_rate, now %d", opts.Frequency, most)
	}
	s := &Session{opts: opts}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := reserve(reservedFiles); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// reservedFiles is how many files workers have open at a time, beside those that are kept, and how many are open
// for the numbers of disks (contentcache.DiskOf) on most machines.
const reservedFiles = 24 + 4

// reserve returns an error if this process cannot open so many files more. Otherwise files and
// tables would be missing in silence.
func reserve(n int) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if backend.IsShortage(err) {
			return fmt.Errorf("recording takes %d open files more than there may be: raise 'ulimit -n': %w", n-len(fds), err)
		}
		if err != nil {
			return fmt.Errorf("eventfd: %w", err)
		}
		fds = append(fds, fd)
	}
	return nil
}

func (s *Session) start(ctx context.Context) error {
	if err := s.newSampler(); err != nil {
		return err
	}
	if err := s.openTargets(); err != nil {
		return err
	}
	if err := s.sampler.prepare(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// Run records until ctx is done, Options.Duration has passed or what is
// recorded has ended. Being interrupted is not an error. After an error there may
// be something to Finish all the same.
func (s *Session) Run(ctx context.Context) error {
	s.started = time.Now()
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	w, err := perfring.NewWaiter(ctx, s.sampler.descriptors(), s.watch, s.sampler.pending)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.sampler.begin(); err != nil {
		return err
	}
	for _, c := range []*launch.Command{s.opts.Command, s.opts.While} {
		if c == nil {
			continue
		}
		if err := c.Release(); err != nil {
			return err
		}
	}
	for {
		over, err := w.Wait(s.sampler.due(), perfring.Breath)
		if err != nil || over {
			return err
		}
		if err := s.sampler.round(); err != nil {
			return err
		}
		if s.opts.Progress != nil {
			s.opts.Progress(time.Since(s.started), s.tally.stats)
		}
	}
}

// bounded returns a context that ends with Options.Duration and Options.While.
func (s *Session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	most := s.opts.Duration
	if most == 0 {
		most = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	if c := s.opts.While; c != nil {
		go func() {
			select {
			case <-c.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// stop ends the recording and handles what is left of it.
func (s *Session) stop() {
	s.sampler.halt()
	s.elapsed = time.Since(s.started)
	s.sampler.finish()
	s.tally.rewrites.LookAgain()
}

// Cost returns how often the BPF program that takes samples has run and how long that took, as far as
// the kernel was counting it (BPF_ENABLE_STATS). Perf has none.
func (s *Session) Cost() (runs uint64, took time.Duration, err error) {
	costs, ok := s.sampler.(interface{ cost() (bpf.Cost, error) })
	if !ok {
		return 0, 0, nil
	}
	c, err := costs.cost()
	return c.Runs, c.Time, err
}

// Release gives back what the kernel has of a recording that is finished, of which the rings alone are some MiB. The
// Recording can still be Symbolized, and Cost is not known any more.
func (s *Session) Release() error {
	if s.sampler == nil {
		return nil
	}
	err := s.sampler.close()
	s.sampler = nil
	return err
}

// Close releases the events and every file that was kept open. The Command, if
// there is one, goes on.
func (s *Session) Close() error {
	var errs []error
	if s.tally != nil {
		s.stopTables()
		s.tally.rewrites.Close()
		s.tally.objects.Close() // its workers use what the sampler has open
	}
	errs = append(errs, s.Release())
	for _, fd := range s.watch {
		errs = append(errs, unix.Close(fd))
	}
	s.watch = nil
	return errors.Join(errs...)
}

// stopTables ends the work at unwind tables, which reads files that are kept open.
func (s *Session) stopTables() {
	if t := s.tally.tables; t != nil {
		t.Stop()
	}
}

// Stats returns what was counted so far.
func (s *Session) Stats() Stats { return s.tally.stats }

// openTargets opens the events of what is to be recorded, not yet running.
func (s *Session) openTargets() error {
	switch {
	case s.opts.SystemWide:
		return s.sampler.openAll()
	case s.opts.Command != nil:
		return s.openCommand(s.opts.Command)
	}
	for _, pid := range slices.Compact(slices.Sorted(slices.Values(s.opts.PIDs))) {
		if err := s.openTarget(pid); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) openCommand(c *launch.Command) error {
	watch, err := unix.PidfdOpen(c.PID(), 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	s.watch = append(s.watch, watch)
	return s.sampler.openCommand(c)
}

func (s *Session) openTarget(pid int) error {
	watch, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return noTarget(pid, err)
	}
	s.watch = append(s.watch, watch)
	if procfs.IsKernelThread(pid) {
		s.tally.stats.KernelThreads = append(s.tally.stats.KernelThreads, pid)
	}
	err = s.sampler.openProcess(pid)
	switch {
	case errors.Is(err, procmap.ErrNoProcess):
		return err
	case err != nil && isForeign(pid) && backend.IsRefusal(err):
		return fmt.Errorf("process %d is another user's: run as root or with CAP_PERFMON", pid)
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// noTarget says why a process cannot be watched, which is that it is none.
func noTarget(pid int, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	if leader := procfs.LeaderOf(pid); leader != 0 && leader != pid {
		return fmt.Errorf("%d is a thread of process %d: record that", pid, leader)
	}
	return &procmap.Error{PID: pid, Err: procmap.ErrNoProcess}
}

// isForeign reports whether a process is not of this user.
func isForeign(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}
