package bpf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// ExecOptions say what an ExecWatcher reports. The zero value reports every execution of a
// program.
type ExecOptions struct {
	Exits      bool // report the ends of processes, too
	Follow     bool // report only the processes that Follow names, and those that they start
	NoTaskWork bool // do not read identities in the processes themselves, as on kernels before 6.18
	Entries    int  // how many files the table has room for; DefaultEntries when 0
	Ring       int  // bytes that events wait in, a power of two; 8 MiB when 0
}

// ExecWatcher says which programs are executed, and with which identities: exec.bpf.c.
// Its methods are for one goroutine.
type ExecWatcher struct {
	spec     *ebpf.CollectionSpec
	options  *ebpf.CollectionOptions
	objects  execCore
	exits    execExits
	links    []link.Link
	table    table
	follower *follower // nil without ExecOptions.Follow
	hook     *hook     // nil because of noHook
	noHook   error
	reader   *ringbuf.Reader
	record   ringbuf.Record
	decoder  execDecoder
	losses   execExecCounters // to read them into
	copies   execCopies
	once     *onceHandler // nil without copies
	taskWork bool
	ticked   time.Time
}

// execCore is what every ExecWatcher has.
type execCore struct {
	execMaps
	execVariables
	SeeExec *ebpf.Program `ebpf:"see_exec"`
	// Variables: those that begin as 0, and the others.
	Zeroed  *ebpf.Map `ebpf:".bss"`
	Started *ebpf.Map `ebpf:".data"`
}

func (o *execCore) Close() error {
	return errors.Join(o.execMaps.Close(), o.SeeExec.Close(), o.Zeroed.Close(), o.Started.Close())
}

// execExits are the programs that report the ends of processes.
type execExits struct {
	SeeExit *ebpf.Program `ebpf:"see_exit"`
	SeeFree *ebpf.Program `ebpf:"see_free"`
}

// execCopies do what the first programs were left out of: see hold_cpu in exec.bpf.c.
type execCopies struct {
	execCopiesOfExec
	execCopiesOfExit
}

type execCopiesOfExec struct {
	SeeExec2 *ebpf.Program `ebpf:"see_exec_2"`
	SeeExec3 *ebpf.Program `ebpf:"see_exec_3"`
}

type execCopiesOfExit struct {
	SeeExit2 *ebpf.Program `ebpf:"see_exit_2"`
	SeeExit3 *ebpf.Program `ebpf:"see_exit_3"`
}

// defaultExecRing has room for some ten thousand events.
const defaultExecRing = 8 << 20

// NewExecWatcher loads the programs and attaches them. The caller closes the ExecWatcher.
func NewExecWatcher(o ExecOptions) (*ExecWatcher, error) {
	w := &ExecWatcher{taskWork: !o.NoTaskWork && HasTaskWork()}
	if err := w.load(o); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF programs that report processes: %w", err), w.Close())
	}
	w.setHook()
	return w, nil
}

func (w *ExecWatcher) load(o ExecOptions) error {
	if err := checkKernel(); err != nil {
		return err
	}
	spec, err := loadExec()
	if err != nil {
		return err
	}
	raiseLocked()
	if err := w.loadCore(spec, o); err != nil {
		return err
	}
	w.openTable()
	if w.reader, err = ringbuf.NewReader(w.objects.Events); err != nil {
		return err
	}
	return w.attach(o)
}

// loadCore loads what every ExecWatcher has. Where programs may be preempted they hold the
// CPU, if the kernel takes that.
func (w *ExecWatcher) loadCore(spec *ebpf.CollectionSpec, o ExecOptions) error {
	if err := w.configure(spec, o); err != nil {
		return err
	}
	if preempts() {
		holding := spec.Copy()
		if err := holding.Variables["hold_cpu"].Set(true); err != nil {
			return err
		}
		w.spec, w.options = holding, loadOptions(holding)
		if err := holding.LoadAndAssign(&w.objects, w.options); err == nil {
			w.once = &onceHandler{seen: map[execution]bool{}}
			return nil
		}
	}
	w.spec, w.options = spec, loadOptions(spec)
	return spec.LoadAndAssign(&w.objects, w.options)
}

// preempts reports whether programs on raw tracepoints may be preempted: since 7.0.
func preempts() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), ".")
	major, err := strconv.Atoi(release)
	return err == nil && major >= 7
}

func (w *ExecWatcher) configure(spec *ebpf.CollectionSpec, o ExecOptions) error {
	w.table.size = DefaultEntries
	if o.Entries > 0 {
		w.table.size = uint64(o.Entries)
	}
	spec.Maps["files"].MaxEntries = uint32(w.table.size)
	spec.Maps["works"].MaxEntries = 1 // these have an array of their own
	ring := defaultExecRing
	if o.Ring > 0 {
		ring = o.Ring
	}
	spec.Maps["events"].MaxEntries = uint32(ring)
	return errors.Join(
		configure(spec, w.taskWork),
		spec.Variables["ring_size"].Set(uint64(ring)),
		spec.Variables["table_size"].Set(w.table.size),
		spec.Variables["table_high"].Set(tableHigh(w.table.size)),
		setFollow(spec, o.Follow),
	)
}

func (w *ExecWatcher) openTable() {
	w.table.files, w.table.now = w.objects.Files, 1
	w.table.inserted, w.table.removed, w.table.time = w.objects.Inserted, w.objects.Removed, w.objects.TableTime
	w.ticked = time.Now()
}

// attach attaches the programs. Those that keep the map of followed processes come last:
// on one tracepoint, programs run in the order in which they were attached, and what ends
// must still be followed when it is reported.
func (w *ExecWatcher) attach(o ExecOptions) error {
	if err := w.attachTo("sched_process_exec", w.objects.SeeExec); err != nil {
		return err
	}
	if w.once != nil {
		if err := w.spec.LoadAndAssign(&w.copies.execCopiesOfExec, w.shared()); err != nil {
			return err
		}
		if err := w.attachTo("sched_process_exec", w.copies.SeeExec2, w.copies.SeeExec3); err != nil {
			return err
		}
	}
	if o.Exits {
		if err := w.spec.LoadAndAssign(&w.exits, w.shared()); err != nil {
			return err
		}
		err := errors.Join(w.attachTo("sched_process_exit", w.exits.SeeExit), w.attachTo("sched_process_free", w.exits.SeeFree))
		if err != nil {
			return err
		}
	}
	if o.Exits && w.once != nil {
		if err := w.spec.LoadAndAssign(&w.copies.execCopiesOfExit, w.shared()); err != nil {
			return err
		}
		if err := w.attachTo("sched_process_exit", w.copies.SeeExit2, w.copies.SeeExit3); err != nil {
			return err
		}
	}
	if !o.Follow {
		return nil
	}
	var err error
	w.follower, err = newFollower(w.objects.Followed)
	return err
}

func (w *ExecWatcher) attachTo(tracepoint string, programs ...*ebpf.Program) error {
	for _, p := range programs {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
		if err != nil {
			return fmt.Errorf("%s: %w", tracepoint, err)
		}
		w.links = append(w.links, l)
	}
	return nil
}

// shared returns options with which programs that are loaded later use these maps and
// variables in place of some of their own.
func (w *ExecWatcher) shared() *ebpf.CollectionOptions {
	var opts ebpf.CollectionOptions
	if w.options != nil {
		opts = *w.options
	}
	opts.MapReplacements = map[string]*ebpf.Map{
		execMapFiles:     w.objects.Files,
		execMapScratches: w.objects.Scratches,
		execMapExecDesks: w.objects.ExecDesks,
		execMapExecWorks: w.objects.ExecWorks,
		execMapEvents:    w.objects.Events,
		execMapFollowed:  w.objects.Followed,
		".bss":           w.objects.Zeroed,
		".data":          w.objects.Started,
	}
	return &opts
}

// setHook attaches the hook where files are mapped, where identities are not read in the
// processes themselves.
func (w *ExecWatcher) setHook() {
	if w.taskWork {
		w.noHook = errTaskWork
		return
	}
	w.hook, w.noHook = newHook(w.spec, w.shared())
}

// TaskWork reports whether identities are read in the processes themselves. Where not,
// user space has to read those that are not read where files are mapped.
func (w *ExecWatcher) TaskWork() bool { return w.taskWork }

// Follow has a process reported, and all that it will start. It needs ExecOptions.Follow.
func (w *ExecWatcher) Follow(pid uint32) error { return w.follower.add(pid, false) }

// Descriptor is readable when there are events to Read.
func (w *ExecWatcher) Descriptor() int { return w.objects.Events.FD() }

// Wake says whether the next event makes the Descriptor readable, or only what should not
// wait: a file that was never seen, and events that take more than half of the room for them.
// A caller that set Wake must Read before waiting.
func (w *ExecWatcher) Wake(wake bool) error {
	if err := w.objects.WakeReader.Set(wake); err != nil {
		return fmt.Errorf("waiting for BPF events: %w", err)
	}
	return nil
}

// Read hands all events that there are to h, and looks after the table of files.
func (w *ExecWatcher) Read(h ExecHandler) error {
	w.reader.SetDeadline(time.Unix(1, 0)) // in the past: take what is there
	if w.once != nil {
		w.once.ExecHandler, h = h, w.once
	}
	for {
		err := w.reader.ReadInto(&w.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return w.tend()
		}
		if err != nil {
			return fmt.Errorf("reading BPF events: %w", err)
		}
		if err := w.decoder.dispatch(w.record.RawSample, h); err != nil {
			return err
		}
	}
}

// tend moves the time of the table on, and makes room in it.
func (w *ExecWatcher) tend() error {
	if time.Since(w.ticked) < time.Second {
		return nil
	}
	w.ticked = time.Now()
	return errors.Join(w.table.tick(), w.objects.WallClock.Set(wallClock()), w.table.makeRoom())
}

// Forget takes the entry of a file out of the table, so that the file is introduced again
// by the next process that executes it.
func (w *ExecWatcher) Forget(f File) error { return w.table.forget(f.Key) }

// ForgetAll has every file introduced again.
func (w *ExecWatcher) ForgetAll() error { return w.table.forgetAll() }

// ExecStats count what the programs could not do.
type ExecStats struct {
	LostExecs  uint64 // executions that there was no room for
	LostExits  uint64 // ends that there was no room for
	LostEnds   uint64 // ends whose CPU time there was no room for
	Unfollowed uint64 // processes that there was no room to follow
	// Uncertain are events that may be lost since programs can be preempted (Linux 7.0): so
	// many at most, and most likely none of them.
	Uncertain uint64
	Asked     uint64 // identities that were to be read in the processes themselves
	Busy      uint64 // those of them that were not, because too many others were
	Known     uint64 // those that were read
}

// Stats returns what was counted since the programs were loaded.
func (w *ExecWatcher) Stats() (ExecStats, error) {
	var n execExecCounters
	var works samplerWorkCounters
	if err := errors.Join(w.objects.ExecDone.Get(&n), w.objects.WorksDone.Get(&works)); err != nil {
		return ExecStats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	s := ExecStats{LostExecs: n.LostExecs, LostExits: n.LostExits, LostEnds: n.LostEnds, Asked: works.Asked, Busy: works.Busy, Known: works.Known}
	execs, exits := w.leftOut()
	if w.once != nil {
		s.Uncertain = execs + exits
	} else {
		s.LostExecs += execs
		s.LostExits += exits
	}
	s.LostEnds += missedRuns(w.exits.SeeFree)
	var err error
	s.Unfollowed, err = w.follower.missed()
	return s, err
}

// Lost returns how many executions and ends there was no room for, as Stats does, which asks the kernel for more.
func (w *ExecWatcher) Lost() (uint64, error) {
	if err := w.objects.ExecDone.Get(&w.losses); err != nil {
		return 0, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	n := w.losses.LostExecs + w.losses.LostExits
	if w.once == nil {
		execs, exits := w.leftOut()
		n += execs + exits
	}
	return n, nil
}

// leftOut returns how many runs the kernel left out of the programs that see executions, and of those that see
// ends: a program that interrupted itself on one CPU did not run.
func (w *ExecWatcher) leftOut() (execs, exits uint64) {
	return missedRuns(w.objects.SeeExec, w.copies.SeeExec2, w.copies.SeeExec3), missedRuns(w.exits.SeeExit, w.copies.SeeExit2, w.copies.SeeExit3)
}

// missedRuns returns how often a program and all its copies can have been left out by the
// kernel together (Linux 5.12): copies that are not needed hardly ever are.
func missedRuns(copies ...*ebpf.Program) uint64 {
	least := uint64(math.MaxUint64)
	for _, p := range copies {
		if p == nil {
			continue
		}
		stats, err := p.Stats()
		if err != nil {
			return 0
		}
		least = min(least, stats.RecursionMisses)
	}
	if least == math.MaxUint64 {
		return 0
	}
	return least
}

// onceHandler passes on what several copies of a program may report, once.
type onceHandler struct {
	ExecHandler
	seen, before map[execution]bool
}

// execution names what a process did.
type execution struct {
	pid     uint32
	started uint64
	count   uint64 // of executions; 0 for the end
}

func (o *onceHandler) isNew(e execution) bool {
	if o.seen[e] || o.before[e] {
		return false
	}
	if len(o.seen) >= 1<<12 {
		o.before, o.seen = o.seen, map[execution]bool{}
	}
	o.seen[e] = true
	return true
}

// Exec passes on an execution.
func (o *onceHandler) Exec(e *Exec) {
	if o.isNew(execution{e.PID, e.Started, e.Count}) {
		o.ExecHandler.Exec(e)
	}
}

// Exit passes on an end.
func (o *onceHandler) Exit(e *Exit) {
	if o.isNew(execution{pid: e.PID, started: e.Started}) {
		o.ExecHandler.Exit(e)
	}
}

// Close detaches and unloads the programs.
func (w *ExecWatcher) Close() error {
	errs := []error{w.follower.close()}
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	if w.hook != nil {
		errs = append(errs, w.hook.close())
	}
	if w.reader != nil {
		errs = append(errs, w.reader.Close())
	}
	for _, p := range []*ebpf.Program{w.exits.SeeExit, w.exits.SeeFree, w.copies.SeeExec2, w.copies.SeeExec3, w.copies.SeeExit2, w.copies.SeeExit3} {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, w.objects.Close())...)
}
