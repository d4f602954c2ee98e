package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/capability"
	"hallmark/internal/perfregs"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/internal/unwindtables"
	"hallmark/launch"
	"hallmark/perfdata"
	"hallmark/procmap"
	"hallmark/reason"
)

// perfSampler takes samples by perf events, whose records report processes and
// mappings as well.
type perfSampler struct {
	*tally
	opts    Options
	plan    *perfring.Plan
	cpus    map[int]*cpuRings
	samples []int // events that sample
	changes []int // events that report processes and mappings
	numbers []int // events that report mappings once more, before those
	rings   []*perfring.Ring
	decoder *perfdata.Decoder
	joiners map[*perfring.Ring]*perfring.Joiner // of the rings of changes
	sorter  perfring.Sorter
	tracker *tracker
	pages   int                   // of a ring that samples are written into
	tables  *unwindtables.Builder // nil when no stacks are copied
	drained uint64                // when the last round of draining began
	gap     gap                   // in the kernel's records of changes, whose turn has not come
	// followed is when CPUs were last looked for that came online.
	followed time.Time
}

// gap is a time in which the kernel may have reported changes in vain, ns, CLOCK_MONOTONIC. It is
// none if until is 0.
type gap struct{ from, until uint64 }

// and returns the time from the beginning of one gap to the end of the other.
func (g gap) and(other gap) gap {
	if g.until == 0 {
		return other
	}
	return gap{min(g.from, other.from), max(g.until, other.until)}
}

// followAfter is how soon CPUs are looked for again.
const followAfter = time.Second

// cpuRings are the rings that all events of a CPU write into.
type cpuRings struct{ samples, changes *perfring.Ring }

func newPerfSampler(t *tally, opts Options) (sampler, error) {
	s := &perfSampler{tally: t, opts: opts, plan: opts.Event.plan(opts.Frequency), cpus: map[int]*cpuRings{}}
	s.tracker = &tracker{tally: t, processes: map[uint32]*process{}, threads: map[uint32]string{}, clock: opts.Event == CPUClock}
	s.tracker.contained = procfs.CheckPIDNamespace() != nil
	s.pages = perfring.SamplePages
	if opts.CallGraph.By == ByDWARF {
		if err := s.copyStacks(); err != nil {
			return nil, err
		}
	}
	if opts.Command != nil {
		s.plan.EnableOnExec()
	}
	s.plan.WithNumbers()
	if len(opts.PIDs) > 0 {
		s.tracker.doubles = newDoubles()
	}
	cpus, err := perfring.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	for _, cpu := range cpus {
		s.cpus[cpu] = &cpuRings{}
	}
	return s, nil
}

// copyStacks lets samples bring their stacks, which are unwound here.
func (s *perfSampler) copyStacks() error {
	m := perfregs.Of(runtime.GOARCH)
	if m == nil {
		return fmt.Errorf("stacks of %s cannot be unwound by DWARF: use --call-graph fp", runtime.GOARCH)
	}
	s.pages = copyRingPages()
	size := cmp.Or(s.opts.CallGraph.StackSize, DefaultStackSize)
	s.plan.CopyStacks(m, size, s.pages)
	s.tables = unwindtables.NewBuilder(s.objects, unwindtables.NewCache(s.opts.CacheDir))
	s.tracker.unwinder = newUserStacks(s.tracker, s.tables, size)
	return nil
}

// copyRingPages returns how many pages the ring of a CPU has for samples that copy stacks: of
// what an ordinary user may lock (perf_mmap of kernel/events/core.c) half, for others.
func copyRingPages() int {
	if capability.CanLockMemory() {
		return perfring.CopyPages
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return perfring.SamplePages
	}
	share := limit.Cur / 2 / uint64(runtime.NumCPU()*os.Getpagesize())
	pages := perfring.SamplePages
	for pages < perfring.CopyPages && uint64(2*pages) <= perfring.SamplePages+share {
		pages *= 2
	}
	return pages
}

func (s *perfSampler) openAll() error { return s.open(-1) }

// openCommand opens events of the one thread of the command that will exec, which
// ends all others.
func (s *perfSampler) openCommand(c *launch.Command) error { return s.open(c.TID()) }

// openProcess opens events for each thread of the process, and looks again until
// no thread is new: those that a thread starts from then on inherit its events. A
// thread that was started meanwhile by one that had its events already has two of
// each, of which one counts: see doubles.
func (s *perfSampler) openProcess(pid int) error {
	have, opened := map[int]bool{}, false
	for {
		tids, err := procfs.ThreadsOf(pid)
		if err != nil {
			return err
		}
		found := false
		for _, tid := range tids {
			if have[tid] {
				continue
			}
			have[tid], found = true, true
			err := s.open(tid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			opened = opened || err == nil
		}
		if !found {
			break
		}
	}
	if !opened {
		return &procmap.Error{PID: pid, Err: procmap.ErrNoProcess}
	}
	return nil
}

// open opens the events of a thread (-1: all threads) on each CPU.
func (s *perfSampler) open(tid int) error {
	for cpu := range s.cpus {
		err := s.openOn(tid, cpu)
		if err != nil && !errors.Is(err, unix.ENODEV) { // the CPU went offline
			return err
		}
	}
	return nil
}

func (s *perfSampler) openOn(tid, cpu int) error {
	events, err := s.plan.Open(tid, cpu)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) && s.opts.Event == CPUClock {
		return err
	}
	if err != nil {
		return perfring.OpenError(s.opts.Event.String(), err)
	}
	s.samples = append(s.samples, events.Samples)
	s.changes = append(s.changes, events.Changes)
	if events.Numbers >= 0 {
		s.numbers = append(s.numbers, events.Numbers)
	}
	if err := s.tracker.doubles.opened(events.Samples, uint32(tid)); err != nil {
		return err
	}
	r := s.cpus[cpu]
	if r.samples, err = s.connect(events.Samples, r.samples, s.pages, &s.plan.Samples); err != nil {
		return err
	}
	pages := cmp.Or(s.opts.changePages, perfring.ChangePages())
	r.changes, err = s.connect(events.Changes, r.changes, pages, &s.plan.Changes)
	if err != nil || events.Numbers < 0 {
		return err
	}
	return r.changes.Share(events.Numbers)
}

// followCPUs opens events on the CPUs that came online, when all are recorded. The
// events of a CPU that went do not come back with it; what is in its rings is
// still read.
func (s *perfSampler) followCPUs() error {
	online, err := perfring.OnlineCPUs()
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.cpus, func(cpu int, _ *cpuRings) bool { return !slices.Contains(online, cpu) })
	for _, cpu := range online {
		if s.cpus[cpu] != nil {
			continue
		}
		if err := s.addCPU(cpu); err != nil {
			return err
		}
	}
	return nil
}

func (s *perfSampler) addCPU(cpu int) error {
	s.cpus[cpu] = &cpuRings{}
	opened, numbered := len(s.samples), len(s.numbers)
	if err := s.openOn(-1, cpu); errors.Is(err, unix.ENODEV) { // it went offline
		delete(s.cpus, cpu)
		return nil
	} else if err != nil {
		return err
	}
	return perfring.Enable(slices.Concat(s.numbers[numbered:], s.changes[opened:], s.samples[opened:]))
}

// connect lets an event with an attribute write into r, or into a new ring where there is none yet.
func (s *perfSampler) connect(fd int, r *perfring.Ring, pages int, attr *unix.PerfEventAttr) (*perfring.Ring, error) {
	if r != nil {
		return r, r.Share(fd)
	}
	r, err := perfring.NewRing(fd, pages, attr)
	if err == nil {
		s.rings = append(s.rings, r)
	}
	return r, err
}

// While the mappings of what runs are read, no record has its turn. maxPending bounds those that wait then, in
// bytes, besides what rounds bring: they leave at most the rings of two rounds, which may fill again meanwhile.
const (
	maxPending   = 64 << 20
	ringsPending = 4
)

func (s *perfSampler) prepare(ctx context.Context) error {
	var err error
	if s.decoder, err = s.plan.Decoder(); err != nil {
		return err
	}
	s.joiners = map[*perfring.Ring]*perfring.Joiner{}
	s.sorter.Most = maxPending
	for _, r := range s.rings {
		s.sorter.Most += ringsPending * r.Size()
	}
	s.stats.Reduced = append(s.stats.Reduced, s.plan.Reduced...)
	if s.opts.SystemWide && s.tracker.contained {
		s.stats.Reduced = append(s.stats.Reduced, "files of the processes outside of this container, which have no number in it and count as one: "+outsideName)
	}
	if s.opts.Command != nil {
		return nil // the events start with its exec, and nothing is there before
	}
	// First the events that report changes, then the stock: what is mapped in
	// between is seen twice rather than not at all. Samples come last, and after what can
	// only be believed if it was read before them.
	s.objects.SetUnsampled(true)
	if err := perfring.Enable(slices.Concat(s.numbers, s.changes)); err != nil {
		return err
	}
	return s.takeStock(ctx)
}

func (s *perfSampler) begin() error {
	if s.opts.Command != nil {
		return nil // its exec does
	}
	s.objects.AwaitStock(stockPatience)
	s.objects.SetUnsampled(false)
	return perfring.Enable(s.samples)
}

// stockPatience is how long samples wait for files that are read before them.
const stockPatience = time.Second

const (
	// stockWorkers read the mappings of as many processes at a time.
	stockWorkers = 4
	// stockTime bounds what they take together for processes of other users than root and this one, who
	// get shares of it and have leastStockTime in any case.
	stockTime      = 10 * time.Second
	leastStockTime = time.Second / 4
)

// takeStock reads name and mappings of the processes that run already, and goes
// on emptying the rings meanwhile. When ctx is done it leaves out the rest.
func (s *perfSampler) takeStock(ctx context.Context) error {
	pids := s.opts.PIDs
	if s.opts.SystemWide {
		var err error
		if pids, err = procfs.Processes(); err != nil {
			return err
		}
	}
	done := make(chan []*process, 1)
	looks := quota.New(int64(stockTime), int64(leastStockTime))
	go func() { done <- s.readProcesses(ctx, pids, looks) }()
	tick := time.NewTicker(time.Second / 50)
	defer tick.Stop()
	for {
		select {
		case found := <-done:
			for _, p := range found {
				s.tracker.put(p)
			}
			s.stats.Existing = len(found)
			return nil
		case <-tick.C:
			s.drain()
		}
	}
}

// readProcesses reads name and mappings of processes, as far as their users have time left.
func (s *perfSampler) readProcesses(ctx context.Context, pids []int, looks *quota.Pool) []*process {
	found := make([]*process, len(pids))
	next := make(chan int)
	var workers sync.WaitGroup
	for range stockWorkers {
		workers.Go(func() {
			for i := range next {
				p := s.tracker.newProcess(uint32(pids[i]), 0, "")
				if ctx.Err() != nil || !looks.Spend(p.Account, func() { p.inventory(s.objects) }) {
					p.unknown = reason.NotRead
				}
				found[i] = p
			}
		})
	}
	for i := range pids {
		next <- i
	}
	close(next)
	workers.Wait()
	return found
}

func (s *perfSampler) descriptors() []int {
	var fds []int
	for _, r := range s.rings {
		fds = append(fds, r.FD)
	}
	return fds
}

func (s *perfSampler) pending() bool { return perfring.AnyDue(s.rings) }

// due is before long if there are records whose turn has not come, or somebody
// wants to see progress.
func (s *perfSampler) due() time.Duration {
	if s.opts.Progress != nil || s.sorter.Pending() || s.tracker.waits() {
		return perfring.LongestWait
	}
	return perfring.Forever
}

// round empties every ring and handles the records whose turn has come.
func (s *perfSampler) round() error {
	before := s.drained
	s.drained = perfring.Monotonic()
	s.drain()
	s.sorter.Flush(before, s.handle)
	if u := s.tracker.unwinder; u != nil {
		u.retry(false)
	}
	s.tracker.reap(before)
	if !s.opts.SystemWide || time.Since(s.followed) < followAfter {
		return nil
	}
	s.followed = time.Now()
	return s.followCPUs()
}

func (s *perfSampler) drain() {
	var buf []byte
	for _, r := range s.rings {
		var ok bool
		missing := gap{}
		joiner := s.joinerOf(r)
		buf, ok = r.Drain(buf, func(rec []byte) {
			time, isKept := s.queue(rec, joiner)
			if !isKept {
				s.stats.Lost++
			}
			if !isKept || perfdata.TypeOf(rec) == perfdata.TypeLost {
				missing = missing.and(gap{r.Last, time})
				joiner.Break()
			}
			r.Last = time
		})
		if !ok {
			s.stats.Malformed++
			joiner.Break()
		}
		if r.WasFull() {
			missing = missing.and(gap{r.Last, perfring.Monotonic()})
		}
		if missing.until != 0 && s.tellsChanges(r) {
			s.gap = s.gap.and(missing)
		}
	}
}

// joinerOf returns what joins the records of a ring.
func (s *perfSampler) joinerOf(r *perfring.Ring) *perfring.Joiner {
	if s.joiners[r] == nil {
		s.joiners[r] = s.plan.Joiner()
	}
	return s.joiners[r]
}

// tellsChanges reports whether the records of changes go to a ring.
func (s *perfSampler) tellsChanges(r *perfring.Ring) bool { return slices.Contains(s.changes, r.FD) }

// queue takes a record out of a ring, and returns its time, and whether there was room for it. Mapped files are
// looked for at once, while their process lives; everything else waits for its turn.
func (s *perfSampler) queue(rec []byte, joiner *perfring.Joiner) (time uint64, isKept bool) {
	time = s.decoder.Time(rec)
	switch perfdata.TypeOf(rec) {
	case perfdata.TypeMmap2, perfdata.TypeMmap:
	default:
		return time, joiner.IsTwice(s.decoder, rec) || s.sorter.Add(time, rec)
	}
	m, err := joiner.Mapping(s.decoder, rec)
	if err != nil {
		s.stats.Malformed++
	}
	if m == nil {
		return time, true
	}
	if !s.sorter.AddMapping(m) {
		return time, false
	}
	if m.Prot&perfdata.ProtExec != 0 && m.Owner != perfdata.NoTask {
		s.objects.Foresee(m)
	}
	return time, true
}

func (s *perfSampler) handle(rec []byte, mapping *perfdata.Mmap2) {
	var r perfdata.Record = mapping
	at := uint64(0)
	if mapping != nil {
		at = mapping.Time
	} else {
		var err error
		if r, err = s.decoder.Decode(rec); err != nil {
			s.stats.Malformed++
			return
		}
		at = s.decoder.Time(rec)
	}
	if s.gap.until != 0 && at > s.gap.from {
		s.tracker.doubt(s.gap.until)
		s.gap = gap{}
	}
	s.tracker.handle(r)
}

func (s *perfSampler) halt() {
	// A ring that was full says how much it lost with the first record that
	// finds room again: make room before the events end.
	s.drain()
	perfring.Disable(s.samples)
}

func (s *perfSampler) finish() {
	perfring.Disable(s.changes)
	perfring.Disable(s.numbers)
	s.drain()
	s.sorter.Flush(^uint64(0), s.handle)
	if u := s.tracker.unwinder; u != nil {
		s.objects.Stop()
		u.settle(s.tables.Wait)
	}
	// The last loss has no record behind it. Newer kernels count it as well.
	total := uint64(0)
	for _, fd := range slices.Concat(s.samples, s.changes, s.numbers) {
		total += perfring.LostBy(fd)
	}
	s.stats.Lost = max(s.stats.Lost, total)
}

func (s *perfSampler) close() error {
	var errs []error
	if s.tables != nil {
		s.tables.Stop()
	}
	for _, r := range s.rings {
		errs = append(errs, r.Close())
	}
	for _, fd := range slices.Concat(s.samples, s.changes, s.numbers) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
