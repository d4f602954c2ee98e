package capture

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/perfdata"
	"hallmark/reason"
)

// perfWatch is told by the records of perf events that count nothing: of names, mappings
// and tasks. Beside programs in the kernel it tells of libraries alone.
type perfWatch struct {
	queue   *watchQueue
	objects *objects
	decoder *perfdata.Decoder
	opts    WatchOptions
	only    bool // libraries
	events  []int
	rings   []*ring
	buf     []byte
	records []watchRecord // whose turn has not come
	until   uint64        // records from before are handled
	drained uint64        // when the last reading began
	tasks   map[uint32]*watchedTask
	lost    uint64
	broken  uint64 // records that could not be read
}

// watchRecord is a record with what was found out when it came.
type watchRecord struct {
	perfdata.Record
	time   uint64
	object *object  // of a mapping
	facts  *factsOf // of an execution
}

// watchedTask is a process that did something since the watch began.
type watchedTask struct {
	ppid    uint32
	name    string // "" when it ran before
	threads int    // that are known to run; 0 when it ran before
	since   uint64 // when it was forked, ns, CLOCK_MONOTONIC; 0 when it ran before
	exec    *perfExec
	program *Binary
	loaded  *object // last
}

// perfExec is an execution: the kernel tells the name first, then what it maps, and the
// vdso last. All else is mapped by the program.
type perfExec struct {
	watch                *perfWatch
	task                 *watchedTask
	event                *WatchEvent
	facts                *factsOf
	program, interpreter *object
	done                 bool
}

const vdsoName = "[vdso]"

func (w *Watch) usePerf() error {
	p, err := newPerfWatch(w.queue, w.opts, false)
	if err != nil {
		return err
	}
	w.teller, w.stats.Backend = p, Perf
	w.stats.Reduced = append(w.stats.Reduced, "arguments and users of processes that end at once, and how processes end (backend perf)")
	if w.opts.Command == nil && checkPIDNamespace() != nil {
		w.stats.Reduced = append(w.stats.Reduced, "what is executed outside of this container, which has no process numbers in it")
	}
	return nil
}

func newPerfWatch(queue *watchQueue, opts WatchOptions, only bool) (*perfWatch, error) {
	p := &perfWatch{queue: queue, objects: newPassingObjects(), opts: opts, only: only, tasks: map[uint32]*watchedTask{}}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// open opens an event on each CPU, for everything or for a command.
func (p *perfWatch) open() error {
	plan := newEventPlan(CPUClock, 1)
	plan.changes.Bits &^= bitKsymbol | bitCgroup
	plan.changes.Sample_type = uint64(noticeFields)
	var err error
	if p.decoder, err = perfdata.NewDecoder(noticeFields); err != nil {
		return err
	}
	tid := -1
	if p.opts.Command != nil {
		tid = p.opts.Command.tid
	}
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		if err := p.openOn(plan, tid, cpu); err != nil && !errors.Is(err, unix.ENODEV) { // it went offline
			return err
		}
	}
	return nil
}

func (p *perfWatch) openOn(plan *eventPlan, tid, cpu int) error {
	fd, err := unix.PerfEventOpen(&plan.changes, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	for err != nil && plan.concede(err) {
		fd, err = unix.PerfEventOpen(&plan.changes, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	if errors.Is(err, unix.ENODEV) {
		return err
	}
	if err != nil {
		return openError(CPUClock, err)
	}
	p.events = append(p.events, fd)
	r, err := newRing(fd, samplePages)
	if err == nil {
		p.rings = append(p.rings, r)
	}
	return err
}

func (p *perfWatch) begin() error {
	p.drained = monotonic()
	return enable(p.events)
}

func (p *perfWatch) descriptors() []int {
	fds := make([]int, len(p.rings))
	for i, r := range p.rings {
		fds[i] = r.fd
	}
	return fds
}

// pause looks again soon while records wait for their turn: files must be opened while
// they can be reached.
func (p *perfWatch) pause(idle bool) (int, time.Duration, error) {
	if idle && len(p.records) == 0 {
		return -1, 0, nil
	}
	return int(glance.Milliseconds()), 0, nil
}

// read takes the records of all CPUs. Those from before the last reading are complete, and
// are handled in the order of their time: see sorter.
func (p *perfWatch) read() (uint64, error) {
	began := monotonic()
	for _, r := range p.rings {
		var ok bool
		if p.buf, ok = r.drain(p.buf[:0], p.take); !ok {
			p.broken++
		}
	}
	slices.SortStableFunc(p.records, func(a, b watchRecord) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for n < len(p.records) && p.records[n].time < p.drained {
		p.handle(&p.records[n])
		n++
	}
	p.records = slices.Delete(p.records, 0, n)
	p.until, p.drained = p.drained, began
	return p.until, nil
}

// take keeps a record, with what can only be found out now.
func (p *perfWatch) take(rec []byte) {
	decoded, err := p.decoder.Decode(rec)
	if err != nil {
		p.broken++
		return
	}
	switch r := decoded.(type) {
	case *perfdata.Mmap2:
		if r.Prot&protExec == 0 || r.Owner == noTask || r.Owner == nobody {
			return
		}
		kept := *r
		w := watchRecord{Record: &kept, time: r.Time}
		if v := vmaOf(r); !isMemory(v) {
			w.object = p.objects.file(keyOf(r), v)
			p.objects.reach(job{object: w.object, vma: v, pid: r.Owner, mapped: wallTime(r.Time)})
		}
		p.records = append(p.records, w)
	case *perfdata.Comm:
		if !r.Exec && r.OwnerPID != r.OwnerTID || r.OwnerPID == nobody {
			return // the name of another thread
		}
		kept := *r
		w := watchRecord{Record: &kept, time: r.Time}
		if r.Exec && !p.only {
			w.facts = readFacts(r.OwnerPID)
		}
		p.records = append(p.records, w)
	case *perfdata.Task:
		if r.ChildPID == nobody {
			return
		}
		kept := *r
		p.records = append(p.records, watchRecord{Record: &kept, time: r.Time})
	case *perfdata.Lost:
		kept := *r
		p.records = append(p.records, watchRecord{Record: &kept, time: r.Time})
		p.lost += r.Count
		p.queue.add(&heldEvent{WatchEvent: &WatchEvent{Kind: Missed, Lost: r.Count}, time: monotonic()}, 0)
	}
}

func (p *perfWatch) handle(w *watchRecord) {
	switch r := w.Record.(type) {
	case *perfdata.Comm:
		p.name(r)
		if r.Exec {
			p.exec(r, w.facts)
		}
	case *perfdata.Mmap2:
		p.mmap(r, w.object)
	case *perfdata.Lost:
		p.forget()
	case *perfdata.Task:
		switch {
		case r.ChildPID == noTask:
		case r.Exited:
			p.exit(r)
		default:
			p.fork(r)
		}
	}
}

// forget forgets all processes where records were lost: which programs they executed meanwhile,
// and whether a number is still that of the same process, is not known. What an execution had
// not told yet it will not tell: the next mapping may be another program's.
func (p *perfWatch) forget() {
	for _, t := range p.tasks {
		if e := t.exec; e != nil && !e.done {
			e.done = true
			if e.program == nil {
				e.program = p.objects.missing(reason.ProcessGone)
			}
		}
	}
	clear(p.tasks)
}

func (p *perfWatch) task(pid uint32) *watchedTask {
	t := p.tasks[pid]
	if t == nil {
		t = &watchedTask{}
		if len(p.tasks) < maxLives {
			p.tasks[pid] = t
		}
	}
	return t
}

func (p *perfWatch) fork(r *perfdata.Task) {
	if r.ChildPID == r.ParentPID {
		if t := p.tasks[r.ChildPID]; t != nil && t.threads > 0 {
			t.threads++
		}
		return
	}
	p.doubt(r.ChildPID, r.Time) // the number is another process's from here on
	delete(p.tasks, r.ChildPID)
	t := p.task(r.ChildPID)
	t.ppid, t.threads, t.since = r.ParentPID, 1, r.Time
	if parent := p.tasks[r.ParentPID]; parent != nil {
		t.name = parent.name
	}
}

// name takes the name of a process. Of one that ran before nothing else is known, so only an
// execution makes it one that is watched.
func (p *perfWatch) name(r *perfdata.Comm) {
	if t := p.tasks[r.OwnerPID]; t != nil || r.Exec {
		p.task(r.OwnerPID).name = r.Name
	}
}

// doubt drops what was read of a process after it became another program, or another
// process became it.
func (p *perfWatch) doubt(pid uint32, at uint64) {
	if t := p.tasks[pid]; t != nil && t.exec != nil && t.exec.facts != nil && t.exec.facts.read >= at {
		t.exec.facts = nil
	}
}

// exec takes the first record of an execution.
func (p *perfWatch) exec(r *perfdata.Comm, facts *factsOf) {
	p.doubt(r.OwnerPID, r.Time)
	t := p.task(r.OwnerPID)
	e := &perfExec{watch: p, task: t, facts: facts}
	t.exec, t.loaded = e, nil
	if p.only {
		return
	}
	e.event = &WatchEvent{Kind: Executed, PID: int(r.OwnerPID), PPID: int(t.ppid), Name: r.Name, Program: &Binary{Reason: reason.ProcessGone}}
	if t.since != 0 {
		e.event.Started = p.queue.clock.at(t.since)
	}
	p.queue.add(&heldEvent{WatchEvent: e.event, time: r.Time, missing: e}, identityPatience)
}

func (e *perfExec) complete() bool {
	p := e.watch
	read := e.facts == nil || e.facts.read < p.until
	return e.done && read && p.objects.settled(e.program) && (e.interpreter == nil || p.objects.settled(e.interpreter))
}

// finish fills in what is known of an execution by now.
func (e *perfExec) finish() {
	p := e.watch
	if e.program != nil {
		p.objects.identify(e.program, e.event.Program)
	}
	if e.interpreter != nil {
		e.event.Interpreter = &Binary{Path: e.interpreter.path}
		p.objects.identify(e.interpreter, e.event.Interpreter)
	}
	if e.facts != nil && e.facts.read < p.until {
		e.facts.fill(e.event)
	}
	e.task.program = e.event.Program
}

// mmap takes a mapping of code.
func (p *perfWatch) mmap(r *perfdata.Mmap2, o *object) {
	t := p.task(r.Owner)
	e := t.exec
	switch {
	case e != nil && !e.done && r.Name == vdsoName:
		e.done = true
		if e.program == nil {
			e.program = p.objects.missing(reason.NotMapped)
		}
	case o == nil:
	case e != nil && !e.done && (e.program == nil || e.program == o):
		e.take(r, o)
	case e != nil && !e.done:
		e.interpreter = o
	case p.opts.Libs && t.loaded != o && (e == nil || o != e.program && o != e.interpreter):
		t.loaded = o
		p.load(r, t, o)
	}
}

// take takes the mapping of the program.
func (e *perfExec) take(r *perfdata.Mmap2, o *object) {
	e.program = o
	if e.event != nil {
		e.event.Program.Path, e.event.Program.Deleted = o.path, isDeleted(r.Name)
	}
}

// isDeleted reports whether a name that the kernel tells is that of a file without one.
func isDeleted(name string) bool {
	return len(name) > len(deleted) && name[len(name)-len(deleted):] == deleted
}

// load tells that a process mapped the code of a library.
func (p *perfWatch) load(r *perfdata.Mmap2, t *watchedTask, o *object) {
	name := t.name
	if name == "" {
		name = processName(r.Owner)
	}
	ev := &WatchEvent{
		Kind: Loaded, PID: int(r.Owner), PPID: int(t.ppid), Name: name, Program: t.program,
		Library: &Binary{Path: o.path, Deleted: isDeleted(r.Name)},
	}
	p.queue.add(&heldEvent{WatchEvent: ev, time: r.Time, missing: &perfLoad{p.objects, o, ev.Library}}, identityPatience)
}

// perfLoad is a library whose identity is on its way.
type perfLoad struct {
	objects *objects
	object  *object
	library *Binary
}

func (l *perfLoad) complete() bool { return l.objects.settled(l.object) }

func (l *perfLoad) finish() { l.objects.identify(l.object, l.library) }

// exit takes the end of a thread. Of a process that ran before it is not known how many it
// has: that ends with its first one.
func (p *perfWatch) exit(r *perfdata.Task) {
	t := p.tasks[r.ChildPID]
	if t != nil && t.threads > 0 {
		t.threads--
		if t.threads > 0 {
			return
		}
	} else if r.ChildPID != r.ChildTID {
		return
	}
	delete(p.tasks, r.ChildPID)
	if p.only || !p.opts.Exits {
		return
	}
	ev := &WatchEvent{Kind: Exited, PID: int(r.ChildPID), PPID: int(r.ParentPID), End: &End{}}
	if t != nil {
		ev.PPID, ev.Name = int(t.ppid), t.name
	}
	if t != nil && t.since != 0 {
		ev.Started, ev.End.Lived = p.queue.clock.at(t.since), time.Duration(r.Time-t.since)
	}
	p.queue.add(&heldEvent{WatchEvent: ev, time: r.Time, missing: &perfEnd{ev, t}}, 0)
}

// perfEnd is the end of a process, which ran what was told last.
type perfEnd struct {
	event *WatchEvent
	task  *watchedTask // nil when nothing is known of it
}

func (e *perfEnd) complete() bool { return true }

func (e *perfEnd) finish() {
	if e.task != nil {
		e.event.Program = e.task.program
	}
}

func (p *perfWatch) halt() { disable(p.events) }

func (p *perfWatch) count(s *WatchStats) {
	s.Malformed += p.broken
	p.objects.mu.Lock()
	defer p.objects.mu.Unlock()
	s.Disagreed += p.objects.disagreed
}

func (p *perfWatch) close() error {
	p.objects.close()
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.close())
	}
	for _, fd := range p.events {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
