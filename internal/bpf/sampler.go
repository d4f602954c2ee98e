package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"hallmark/internal/fstimes"
)

// Options say how a Sampler samples. The zero value is right.
type Options struct {
	UserOnly   bool // leave the kernel's part of stacks out
	Follow     bool // sample only the processes that Follow names
	Times      bool // count each sample by itself: see Task.Seen
	NoTaskWork bool // do not read identities in the sampled tasks, as on kernels before 6.18
	Entries    int  // how many files the table has room for; DefaultEntries when 0
	Running    bool // load what Enter needs
	// Unwind walks stacks of the user by the Tables that it is given, in place of the
	// kernel's walk by frame pointers. Samples that need a table which is not there are
	// sent as Copies.
	Unwind       bool
	UnwindMemory int64 // bytes of tables at most; DefaultUnwindMemory when 0
	// CopyAll sends every sample as a Copy from its innermost frame on, and counts it
	// nevertheless: so whoever walks it can compare.
	CopyAll bool
}

// Sampler counts stacks inside the kernel. Its methods are for one goroutine, but
// Forget.
type Sampler struct {
	spec     *ebpf.CollectionSpec
	options  *ebpf.CollectionOptions
	objects  coreObjects
	table    table
	tables   *Tables // nil without Options.Unwind
	eviction *eviction
	follower *follower // nil without Options.Follow
	hook     *hook     // nil because of noHook
	noHook   error
	stock    *Stock // nil because of noStock
	noStock  error
	reader   *ringbuf.Reader
	// writing is the map that samples are counted in; emptied is the other one.
	writing, emptied *ebpf.Map
	epoch            uint32
	taskWork         bool
	record           ringbuf.Record
	keys             []samplerCountKey
	values           []uint64
	names            known // of processes and threads
}

// countBatch is how many counts are taken out of the kernel at a time.
const countBatch = 1024

// MaxCounts is MAX_COUNTS of sample.bpf.c.
const MaxCounts = 16384

// NewSampler loads the programs. They sample nothing until they are attached. The
// caller closes the Sampler.
func NewSampler(o Options) (*Sampler, error) {
	s := &Sampler{taskWork: !o.NoTaskWork && HasTaskWork(), epoch: 1}
	if err := s.load(o); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF sampler: %w", err), s.Close())
	}
	s.setHook()
	return s, nil
}

func (s *Sampler) load(o Options) error {
	if err := checkKernel(); err != nil {
		return err
	}
	spec, err := loadSampler()
	if err != nil {
		return err
	}
	size := uint64(cmp.Or(o.Entries, DefaultEntries))
	spec.Maps["files"].MaxEntries = uint32(size)
	if err := configure(spec, s.taskWork); err != nil {
		return err
	}
	for name, value := range map[string]any{"want_kernel": !o.UserOnly, "table_size": size, "table_high": tableHigh(size)} {
		if err := spec.Variables[name].Set(value); err != nil {
			return err
		}
	}
	if err := setFollow(spec, o.Follow); err != nil {
		return err
	}
	if err := setUnwind(spec, &o); err != nil {
		return err
	}
	if err := spec.Variables["want_times"].Set(o.Times); err != nil {
		return err
	}
	growByNeed(spec)
	s.leaveOut(spec, o.Running)
	s.spec, s.options = spec, loadOptions(spec)
	if err := s.loadObjects(o.Running); err != nil {
		return err
	}
	s.openTable(size)
	if o.Unwind {
		if s.tables, err = newTables(&s.objects, spec); err != nil {
			return err
		}
	}
	if o.Follow {
		if s.follower, err = newFollower(s.objects.Followed); err != nil {
			return err
		}
	}
	counts := spec.Maps["counts"].InnerMap
	if s.writing, err = ebpf.NewMap(counts); err != nil {
		return err
	}
	if s.emptied, err = ebpf.NewMap(counts); err != nil {
		return err
	}
	if err := s.objects.Counts.Put(uint32(0), s.writing); err != nil {
		return err
	}
	s.keys, s.values = make([]samplerCountKey, countBatch), make([]uint64, countBatch)
	s.reader, err = ringbuf.NewReader(s.objects.Events)
	return err
}

// growByNeed lets those maps take memory when they need it that have room for far more than most
// recordings have. To fill them beforehand takes longer than to make all others.
//
// The kernel counts the elements of such a map under a plain spin lock (percpu_counter_add_batch). So
// they are the maps that no program but the one that samples changes, which does not interrupt itself,
// nor a system call on a map: see docs/nmi.md. The table of files is changed by programs in tasks.
func growByNeed(spec *ebpf.CollectionSpec) {
	spec.Maps["counts"].InnerMap.Flags |= unix.BPF_F_NO_PREALLOC
	spec.Maps["unwind_tables"].Flags |= unix.BPF_F_NO_PREALLOC
}

// leaveOut takes programs out that will not be loaded, so that nothing is prepared for them.
func (s *Sampler) leaveOut(spec *ebpf.CollectionSpec, running bool) {
	if s.taskWork {
		delete(spec.Programs, samplerProgSeeMapping)
	}
	if !running {
		delete(spec.Programs, samplerProgTakeStock)
	}
}

func (s *Sampler) openTable(size uint64) {
	s.table.files, s.table.size, s.table.now = s.objects.Files, size, 1
	s.table.inserted, s.table.removed, s.table.time = s.objects.Inserted, s.objects.Removed, s.objects.TableTime
}

// configure sets what the programs of both objects must know of the kernel.
func configure(spec *ebpf.CollectionSpec, taskWork bool) error {
	leaveOldTaskWork(spec)
	return errors.Join(
		spec.Variables["task_work"].Set(taskWork),
		spec.Variables["wall_clock"].Set(wallClock()),
		spec.Variables["times_delay"].Set(int64(fstimes.Delay())),
		setTrusted(spec),
		setSubvolumes(spec),
	)
}

// setTrusted names the file systems whose times can be believed.
func setTrusted(spec *ebpf.CollectionSpec) error {
	var magics [8]uint32 // MAX_TRUSTED of fs.h
	list := fstimes.List()
	if len(list) > len(magics) {
		return fmt.Errorf("%d file systems with times to believe, and room for %d", len(list), len(magics))
	}
	for i, fs := range list {
		magics[i] = fs.Magic
	}
	return spec.Variables["trusted_magics"].Set(magics)
}

// wallClock returns what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, in ns.
func wallClock() int64 {
	ahead, best := int64(0), int64(math.MaxInt64)
	for range clockReadings {
		var before, real, after unix.Timespec
		if errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &before), unix.ClockGettime(unix.CLOCK_REALTIME, &real), unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)) != nil {
			return 0 // never: both clocks are there
		}
		if took := after.Nano() - before.Nano(); took < best {
			ahead, best = real.Nano()-after.Nano(), took
		}
	}
	return ahead
}

// clockReadings is how often both clocks are read: between two readings this thread may have to
// wait for a CPU, and the shortest time between them counts.
const clockReadings = 5

// HasTaskWork reports whether the kernel runs programs in a task before it returns
// to user mode (6.18).
func HasTaskWork() bool { return hasFunction(taskWorkOld) || hasFunction(taskWorkNew) }

// TaskWork reports whether identities are read in the sampled tasks. Where not,
// user space has to read all of them.
func (s *Sampler) TaskWork() bool { return s.taskWork }

// Attach lets the program take the samples of a perf event.
func (s *Sampler) Attach(event int) error { return attach(event, s.objects.Sample) }

func attach(event int, p *ebpf.Program) error {
	if err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_BPF, p.FD()); err != nil {
		return fmt.Errorf("attaching a BPF program to a perf event: %w", err)
	}
	return nil
}

// Follow has a process sampled, and all that it will start, from now on or from when it
// executes a program. It needs Options.Follow.
func (s *Sampler) Follow(pid uint32, fromExec bool) error { return s.follower.add(pid, fromExec) }

// Descriptor is readable when there are events to Read.
func (s *Sampler) Descriptor() int { return s.objects.Events.FD() }

// Read hands all events that there are to h, and makes room in the table of files if
// that is nearly full.
func (s *Sampler) Read(h Handler) error {
	s.reader.SetDeadline(time.Unix(1, 0)) // in the past: take what is there
	for {
		err := s.reader.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return s.tend()
		}
		if err != nil {
			return fmt.Errorf("reading BPF events: %w", err)
		}
		if err := dispatch(s.record.RawSample, h); err != nil {
			return err
		}
	}
}

// Counted returns how many pairs of stack and owner were counted since the last
// call of Counts. There is room for MaxCounts; the Descriptor wakes at half of it.
func (s *Sampler) Counted() int {
	var n uint64
	if err := s.objects.Counted.Get(&n); err != nil {
		return MaxCounts // whoever asks takes them, and gets the error
	}
	return int(n)
}

// Counts calls each for every stack and owner that was counted since the last
// call. The frames of these stacks are in the events that are Read after it. Each call
// moves the time on by which the table of files knows what is used.
func (s *Sampler) Counts(each func(stack StackID, task Task, samples uint64)) error {
	// Set to 0 before the maps change places: what is counted meanwhile counts twice
	// here, and not at all if it were done after.
	err := errors.Join(s.table.tick(), s.objects.Counted.Set(uint64(0)), s.objects.WallClock.Set(wallClock()))
	if err != nil {
		return fmt.Errorf("taking the counts of BPF: %w", err)
	}
	// Updating a map of maps waits for the programs that still run with the old one
	// (maybe_wait_bpf_programs, kernel/bpf/syscall.c).
	if err := s.objects.Counts.Put(uint32(0), s.emptied); err != nil {
		return fmt.Errorf("taking the counts of BPF: %w", err)
	}
	s.writing, s.emptied = s.emptied, s.writing
	return drainCounts(s.emptied, s.keys, s.values, func(k *samplerCountKey, n uint64) {
		each(StackID{k.Stack.A, k.Stack.B}, taskOf(k, &s.names), n)
	})
}

// drainCounts takes all counts out of a map that nobody writes into, a batch as
// large as keys and values at a time.
func drainCounts(m *ebpf.Map, keys []samplerCountKey, values []uint64, each func(k *samplerCountKey, n uint64)) error {
	for cursor := new(ebpf.MapBatchCursor); ; {
		n, err := m.BatchLookupAndDelete(cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("taking the counts of BPF: %w", err)
		}
		for i := range n {
			each(&keys[i], values[i])
		}
		if err != nil {
			return nil
		}
	}
}

// Resend has the frames of every stack that is seen from now on sent again.
func (s *Sampler) Resend() error {
	s.epoch++
	return s.objects.Epoch.Set(s.epoch)
}

// Forget takes the entry of a file out of the table, so that the file is
// introduced again by the next process that is seen in it.
func (s *Sampler) Forget(f File) error { return s.table.forget(f.Key) }

// ForgetAll takes every entry out of the table, so that every file is introduced
// again.
func (s *Sampler) ForgetAll() error { return s.table.forgetAll() }

// EvictionHooks names where the kernel says which inodes are gone, so that their
// entries are the first to make room; "" where it does not.
func (s *Sampler) EvictionHooks() string {
	s.watchInodes()
	return s.eviction.String()
}

// tend looks after the table of files.
func (s *Sampler) tend() error {
	entries, _, err := s.table.stats()
	if err != nil {
		return err
	}
	if entries >= s.table.size/2 {
		s.watchInodes()
	}
	return s.table.makeRoom()
}

// watchInodes attaches the programs that mark entries of inodes that are gone. To load
// them, the library reads all types of the kernel, which takes as long as all else that
// a Sampler does at its start: so they are attached when the table is half full.
func (s *Sampler) watchInodes() {
	if s.eviction == nil {
		s.eviction = newEviction(s.objects.Files)
	}
}

// Stats count what the programs did and could not do.
type Stats struct {
	Samples    uint64
	Frames     uint64 // of user code
	Walks      uint64 // searches for a mapping
	Unstable   uint64 // searches that met a change
	Torn       uint64 // entries of the table that were being written
	Stale      uint64 // entries of the table of files that changed
	Written    uint64 // searches that met a file being written, or just written
	TableFull  uint64 // frames in files that the table had no room for
	Refused    uint64 // frames in files that the table took no entry for at once
	LostCounts uint64 // samples that there was no room to count
	LostEvents uint64 // events that found no room, most of which come again
	Unwound    uint64 // stacks that were walked by tables
	Copies     uint64 // samples that were sent to be finished
	LostCopies uint64 // samples that were to be finished, and that the ring had no room for
	Spaces     uint64 // spaces that were sent
	Unfollowed uint64 // processes that there was no room to follow

	Entries uint64 // in the table of files now
	Evicted uint64 // entries that were taken out to make room for others
	Gone    uint64 // entries whose inode is gone, as far as the kernel reports it

	Asked    uint64 // identities that were to be read in the sampled task
	Busy     uint64 // those that were put off
	Readings uint64 // those that were tried
	Known    uint64 // those that were read
	Left     uint64 // those that were left to user space, because memory must not be trusted or is not there
	Changed  uint64 // those put off because mappings or file changed meanwhile
}

// Stats returns what was counted since the programs were loaded.
func (s *Sampler) Stats() (Stats, error) {
	sum, err := readStats(s.objects.Scratches, s.objects.WorksDone)
	if err != nil {
		return Stats{}, err
	}
	if sum.Entries, sum.Evicted, err = s.table.stats(); err != nil {
		return Stats{}, err
	}
	if sum.Unfollowed, err = s.follower.missed(); err != nil {
		return Stats{}, err
	}
	if s.eviction != nil {
		sum.Gone, err = s.eviction.count()
	}
	return sum, err
}

// readStats adds up the counters of all CPUs. They are the first thing in a CPU's
// scratch memory.
func readStats(scratches *ebpf.Map, worksDone *ebpf.Variable) (Stats, error) {
	var cpus [][]byte
	if err := scratches.Lookup(uint32(0), &cpus); err != nil {
		return Stats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	var w samplerWorkCounters
	if err := worksDone.Get(&w); err != nil {
		return Stats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	sum := Stats{Asked: w.Asked, Busy: w.Busy, Readings: w.Runs, Known: w.Known, Left: w.Left, Changed: w.Changed, LostEvents: w.LostEvents}
	for _, cpu := range cpus {
		var n samplerSampleCounters
		if err := decode(cpu, &n); err != nil {
			return Stats{}, err
		}
		sum.Samples += n.Samples
		sum.Frames += n.Frames
		sum.Walks += n.Walks
		sum.Unstable += n.Unstable
		sum.Torn += n.Torn
		sum.Stale += n.Stale
		sum.Written += n.Written
		sum.TableFull += n.TableFull
		sum.Refused += n.Refused
		sum.LostCounts += n.LostCounts
		sum.LostEvents += n.LostEvents
		sum.Unwound += n.Unwound
		sum.Copies += n.Copies
		sum.LostCopies += n.LostCopies
		sum.Spaces += n.Spaces
	}
	return sum, nil
}

// Close unloads the programs.
func (s *Sampler) Close() error {
	errs := []error{s.follower.close(), s.tables.close()}
	if s.eviction != nil {
		errs = append(errs, s.eviction.close())
	}
	if s.hook != nil {
		errs = append(errs, s.hook.close())
	}
	if s.stock != nil {
		errs = append(errs, s.stock.Close())
	}
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	for _, m := range []*ebpf.Map{s.writing, s.emptied} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, s.objects.Close())...)
}
