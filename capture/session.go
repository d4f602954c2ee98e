// Package capture records which code runs on this machine, each frame of every
// stack with the identity of the file it came from.
//
// Start opens the events and takes stock of what runs already, Run records, and
// Finish turns what was seen into a profile. All processes, some of them, or one
// Command can be recorded.
package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/perfdata"
)

// Options say what is recorded. One of SystemWide, PIDs and Command is set;
// the zero value of everything else is right.
type Options struct {
	SystemWide bool     // every process on every CPU; needs root or CAP_PERFMON
	PIDs       []int    // these processes, with the children they will have
	Command    *Command // this program, which Run releases, with its children

	Frequency int           // samples a second and CPU; 99 when 0
	Duration  time.Duration // how long Run records; until it is interrupted when 0
	Event     Event         // what makes a sample be taken

	// Progress is called a few times a second while Run records; nil for no call.
	Progress func(elapsed time.Duration, s Stats)
}

// DefaultFrequency is the number of samples a second and CPU: not 100, so as not
// to run in step with what happens at round intervals.
const DefaultFrequency = 99

// Stats count what a recording saw and what it could not see.
type Stats struct {
	Samples   uint64
	Lost      uint64   // records that found no room in a ring buffer
	Throttled uint64   // times the kernel held an event back because it fired too often
	Malformed uint64   // records that could not be decoded
	Coarse    uint64   // samples counted with less detail, to bound the memory
	Existing  int      // processes that ran when the recording started
	Reduced   []string // what this kernel or this user's rights did not allow
}

// Session is a recording. Its methods are for one goroutine.
type Session struct {
	opts    Options
	plan    *eventPlan
	samples []int // events that sample
	changes []int // events that tell of processes and mappings
	rings   []*ring
	decoder *perfdata.Decoder
	early   *perfdata.Decoder // for what must be looked at before its turn
	sorter  sorter
	objects *objects
	tracker *tracker
	stats   Stats
	watch   []int  // pidfds of the processes and the command that are recorded
	drained uint64 // when the last round of draining began
	started time.Time
	elapsed time.Duration // from the start of the samples to their end
}

// Start opens the events and takes stock of the processes that run. When the
// error is nil the caller must Close the Session.
func Start(opts Options) (*Session, error) {
	if opts.Frequency == 0 {
		opts.Frequency = DefaultFrequency
	}
	if most := maxFrequency(); opts.Frequency > most {
		return nil, fmt.Errorf("a frequency of %d Hz is above kernel.perf_event_max_sample_rate, now %d", opts.Frequency, most)
	}
	s := &Session{opts: opts, plan: newEventPlan(opts.Event, opts.Frequency), objects: newObjects()}
	s.tracker = &tracker{
		objects:   s.objects,
		kernel:    newKernel(s.objects),
		cgroups:   newCgroups(),
		stacks:    newStacks(),
		stats:     &s.stats,
		processes: map[uint32]*process{},
		threads:   map[uint32]string{},
		perSample: time.Second / time.Duration(opts.Frequency),
		clock:     opts.Event == CPUClock,
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) start() error {
	if err := s.openEvents(); err != nil {
		return err
	}
	var err error
	if s.decoder, err = perfdata.NewDecoder(s.plan.fields()); err != nil {
		return err
	}
	if s.early, err = perfdata.NewDecoder(s.plan.fields()); err != nil {
		return err
	}
	s.stats.Reduced = s.plan.reduced
	if s.opts.Command != nil {
		return nil // the events start with its exec, and nothing is there before
	}
	// First the events that tell of changes, then the stock: what is mapped in
	// between is seen twice rather than not at all. Samples come last.
	if err := enable(s.changes); err != nil {
		return err
	}
	return s.takeStock()
}

func enable(fds []int) error {
	for _, fd := range fds {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("starting the perf events: %w", err)
		}
	}
	return nil
}

func disable(fds []int) {
	for _, fd := range fds {
		// It fails only for an event that never came to be.
		_ = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0)
	}
}

// Run records until ctx is done, Options.Duration has passed or what is
// recorded has ended. Being interrupted is not an error. After an error there may
// be something to Finish all the same.
func (s *Session) Run(ctx context.Context) error {
	s.started = time.Now()
	if s.opts.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Duration)
		defer cancel()
	}
	w, err := newWaiter(ctx, s.rings, s.watch)
	if err != nil {
		return err
	}
	defer w.close()
	if c := s.opts.Command; c != nil {
		err = c.Release() // its exec starts the samples
	} else {
		err = enable(s.samples)
	}
	if err != nil {
		return err
	}
	for {
		over, err := w.wait(len(s.sorter.pending) > 0)
		if err != nil || over {
			return err
		}
		s.round()
		if s.opts.Progress != nil {
			s.opts.Progress(time.Since(s.started), s.stats)
		}
	}
}

// round empties every ring and handles the records whose turn has come.
func (s *Session) round() {
	before := s.drained
	s.drained = monotonic()
	s.drain()
	s.sorter.flush(before, s.handle)
	s.tracker.reap(before)
}

func (s *Session) drain() {
	var buf []byte
	for _, r := range s.rings {
		var ok bool
		if buf, ok = r.drain(buf, s.queue); !ok {
			s.stats.Malformed++
		}
	}
}

// queue takes a record out of a ring. Mapped files are looked for at once, while
// their process lives; everything else waits for its turn.
func (s *Session) queue(rec []byte) {
	s.sorter.add(s.decoder.Time(rec), rec)
	if kind := perfdata.TypeOf(rec); kind != perfdata.TypeMmap2 && kind != perfdata.TypeMmap {
		return
	}
	if r, err := s.early.Decode(rec); err == nil {
		s.objects.foresee(r.(*perfdata.Mmap2))
	}
}

func (s *Session) handle(rec []byte) {
	r, err := s.decoder.Decode(rec)
	if err != nil {
		s.stats.Malformed++
		return
	}
	s.tracker.handle(r)
}

// stop ends the recording and handles what is still in the rings.
func (s *Session) stop() {
	// A ring that was full tells how much it lost with the first record that
	// finds room again: make room before the events end.
	s.round()
	disable(s.samples)
	s.elapsed = time.Since(s.started)
	disable(s.changes)
	s.drain()
	s.sorter.flush(^uint64(0), s.handle)
	// The last loss has no record behind it. Newer kernels count it as well.
	total := uint64(0)
	for _, fd := range slices.Concat(s.samples, s.changes) {
		total += lost(fd)
	}
	s.stats.Lost = max(s.stats.Lost, total)
}

// Close releases the events and every file that was kept open. The Command, if
// there is one, goes on.
func (s *Session) Close() error {
	var errs []error
	for _, r := range s.rings {
		errs = append(errs, r.close())
	}
	for _, fd := range slices.Concat(s.samples, s.changes, s.watch) {
		errs = append(errs, unix.Close(fd))
	}
	s.rings, s.samples, s.changes, s.watch = nil, nil, nil, nil
	s.objects.close()
	return errors.Join(errs...)
}

// Stats returns what was counted so far.
func (s *Session) Stats() Stats { return s.stats }

func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock and the pointer are valid
	}
	return uint64(now.Nano())
}
