package execwatch

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/aside"
	"hallmark/internal/backend"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/perfdata"
	"hallmark/reason"
)

// perfWatch learns from the records of perf events that count nothing: of names, mappings
// and tasks. Beside programs in the kernel it reports libraries alone.
type perfWatch struct {
	queue   *watchQueue
	objects *objects.Set
	decoder *perfdata.Decoder
	opts    Options
	only    bool // libraries
	events  []int
	numbers []int // events that report mappings once more, before those
	rings   []*perfring.Ring
	joiners []*perfring.Joiner // of the rings
	buf     []byte
	records []watchRecord // whose turn has not come
	until   uint64        // records from before are handled
	drained uint64        // when the last reading began
	tasks   map[uint32]*watchedTask
	begins  map[uint32]bool // processes that execute: what they map is the program, its interpreter, or the vdso at the end
	running runningPrograms // of processes whose execution was not reported
	facts   factsReaders
	ended   map[uint32]*pendingFacts // of processes that have ended, until their number is used again
	release func()                   // of the helper
	lost    uint64
	broken  uint64 // records that could not be read
}

// watchRecord is a record with what was found out when it came.
type watchRecord struct {
	perfdata.Record
	time   uint64
	object *objects.Object // of a mapping
	look   *objects.Job    // at the object, if it is a program's all the same; nil where that was asked for
	facts  *pendingFacts   // of an execution
}

// watchedTask is a process that did something since the watch began.
type watchedTask struct {
	ppid    uint32
	name    string // "" when it ran before
	threads int    // that are known to run; 0 when it ran before
	since   uint64 // when it was forked, ns, CLOCK_MONOTONIC; 0 when it ran before
	exec    *perfExec
	ran     *perfProgram // nil when it ran before
	loaded  fileOfRecord // last
}

// perfProgram is what one process or several run: children run their parent's until they execute
// another.
type perfProgram struct {
	binary *Binary // nil until the execution was reported
	// before is the list that has it as the program of a process, if no execution was reported.
	before *programList
	pid    uint32
}

// known returns the program and the name of who executed it; nil and "" when they are not known.
func (r *perfProgram) known(c *perfring.WallClock) (*Binary, string) {
	switch {
	case r == nil:
		return nil, ""
	case r.before == nil:
		return r.binary, ""
	}
	// A process that was started since is another one of that number.
	p := r.before.of(r.pid)
	if p == nil || c.SinceBoot(p.started) >= r.before.began {
		return nil, ""
	}
	return p.binary, p.name
}

// perfExec is an execution: the kernel reports the name first, then what it maps, and the
// vdso last. All else is mapped by the program.
type perfExec struct {
	watch                *perfWatch
	ran                  *perfProgram
	event                *Event
	facts                *pendingFacts
	program, interpreter *objects.Object
	file, loaderFile     *reportedFile
	of, loader           fileOfRecord // program and interpreter
	done                 bool
}

// fileOfRecord is what records say of a file. Two mappings of it, one after the other in one
// process, are distinguished by nothing else.
type fileOfRecord struct {
	name              string
	major, minor      uint32
	inode, generation uint64
	id                string
}

func fileOf(r *perfdata.Mmap2) fileOfRecord {
	return fileOfRecord{r.Name, r.Major, r.Minor, r.Inode, r.Generation, string(r.BuildID)}
}

// isFile reports whether two records seem to be of one file. Beside a build ID the numbers may be missing.
func (f *fileOfRecord) isFile(other *fileOfRecord) bool {
	if f.id == "" || f.inode != 0 && other.inode != 0 {
		return *f == *other
	}
	return f.name == other.name && f.id == other.id
}

const vdsoName = "[vdso]"

// recordFields is what each record has beside itself, and the number of its event.
const recordFields = perfdata.SampleTID | perfdata.SampleTime

func (w *Watch) usePerf() error {
	p, err := newPerfWatch(w.queue, w.opts, false)
	if err != nil {
		return err
	}
	w.teller, w.stats.Backend = p, backend.Perf
	w.stats.Reduced = append(w.stats.Reduced, "arguments and users of processes that end at once, and how processes end (backend perf)")
	if w.opts.Command == nil && procfs.CheckPIDNamespace() != nil {
		w.stats.Reduced = append(w.stats.Reduced, "what is executed outside of this container, which has no process numbers in it")
	}
	return nil
}

func newPerfWatch(queue *watchQueue, opts Options, only bool) (*perfWatch, error) {
	p := &perfWatch{queue: queue, objects: objects.NewPassing(), opts: opts, only: only, tasks: map[uint32]*watchedTask{}, begins: map[uint32]bool{}, facts: newFactsReaders(), release: aside.Hold()}
	p.running.wanted = opts.Exits && opts.Command == nil && !only
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// open opens an event on each CPU, for everything or for a command.
func (p *perfWatch) open() error {
	plan := perfring.NewPlan(1)
	plan.Changes.Bits &^= perfring.BitKsymbol | perfring.BitCgroup
	plan.Changes.Sample_type = uint64(recordFields)
	plan.WithNumbers()
	var err error
	if p.decoder, err = perfdata.NewDecoder(perfdata.SampleType(plan.Changes.Sample_type)); err != nil {
		return err
	}
	tid := -1
	if p.opts.Command != nil {
		tid = p.opts.Command.TID()
	}
	cpus, err := perfring.OnlineCPUs()
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

func (p *perfWatch) openOn(plan *perfring.Plan, tid, cpu int) error {
	events, err := plan.OpenChanges(tid, cpu)
	if errors.Is(err, unix.ENODEV) {
		return err
	}
	if err != nil {
		return perfring.OpenError("cpu-clock", err)
	}
	p.events = append(p.events, events.Changes)
	if events.Numbers >= 0 {
		p.numbers = append(p.numbers, events.Numbers)
	}
	r, err := perfring.NewRing(events.Changes, perfring.SamplePages, &plan.Changes)
	if err != nil {
		return err
	}
	p.rings, p.joiners = append(p.rings, r), append(p.joiners, plan.Joiner())
	if events.Numbers < 0 {
		return nil
	}
	return r.Share(events.Numbers)
}

func (p *perfWatch) begin() error {
	if !p.only {
		p.facts.read(uint32(os.Getpid())) // so that a helper is there when it is needed
	}
	p.drained = perfring.Monotonic()
	err := perfring.Enable(slices.Concat(p.numbers, p.events))
	p.running.take()
	return err
}

func (p *perfWatch) descriptors() []int {
	fds := make([]int, len(p.rings))
	for i, r := range p.rings {
		fds[i] = r.FD
	}
	return fds
}

func (p *perfWatch) pending() bool { return perfring.AnyDue(p.rings) }

// pause looks again soon while records wait for their turn: files must be opened while
// they can be reached.
func (p *perfWatch) pause(idle bool) (time.Duration, error) {
	if idle && len(p.records) == 0 {
		return perfring.Forever, nil
	}
	return perfring.Glance, nil
}

// read takes the records of all CPUs. Those from before the last reading are complete, and
// are handled in the order of their time: see sorter.
func (p *perfWatch) read() (uint64, error) {
	began := perfring.Monotonic()
	for i, r := range p.rings {
		var ok bool
		if p.buf, ok = r.Drain(p.buf[:0], func(rec []byte) { p.take(rec, p.joiners[i]) }); !ok {
			p.broken++
			p.joiners[i].Break()
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
	p.running.renew()
	return p.until, nil
}

// take keeps a record, with what can only be found out now.
func (p *perfWatch) take(rec []byte, joiner *perfring.Joiner) {
	switch perfdata.TypeOf(rec) {
	case perfdata.TypeMmap2, perfdata.TypeMmap:
		m, err := joiner.Mapping(p.decoder, rec)
		if err != nil {
			p.broken++
		}
		if m != nil {
			p.takeMapping(m)
		}
		return
	case perfdata.TypeLost:
		joiner.Break()
	}
	if joiner.IsTwice(p.decoder, rec) {
		return
	}
	decoded, err := p.decoder.Decode(rec)
	if err != nil {
		p.broken++
		return
	}
	p.takeRecord(decoded)
}

// takeRecord is take for a record that may be overwritten afterwards.
func (p *perfWatch) takeRecord(decoded perfdata.Record) {
	switch r := decoded.(type) {
	case *perfdata.Mmap2:
		p.takeMapping(r)
	case *perfdata.Comm:
		if !r.Exec && r.OwnerPID != r.OwnerTID || r.OwnerPID == perfdata.Idle {
			return // the name of another thread
		}
		kept := *r
		w := watchRecord{Record: &kept, time: r.Time}
		if r.Exec && !p.only {
			w.facts = p.facts.read(r.OwnerPID)
		}
		if r.Exec && len(p.begins) < maxLives {
			p.begins[r.OwnerPID] = true
		}
		p.records = append(p.records, w)
	case *perfdata.Task:
		if r.ChildPID == perfdata.Idle {
			return
		}
		if r.Exited && r.ChildPID == r.ChildTID {
			delete(p.begins, r.ChildPID)
		}
		kept := *r
		p.records = append(p.records, watchRecord{Record: &kept, time: r.Time})
	case *perfdata.Lost:
		kept := *r
		p.records = append(p.records, watchRecord{Record: &kept, time: r.Time})
		p.lost += r.Count
		p.queue.add(&heldEvent{Event: &Event{Kind: Missed, Lost: r.Count}, time: perfring.Monotonic()}, 0)
	}
}

// takeMapping keeps the record of a mapping of code, and has its file looked at. Where libraries are not wanted
// that is for the time in which a process executes. A process may change its CPU meanwhile, whose records come
// earlier or later: the file of such a record is looked at when its turn comes.
func (p *perfWatch) takeMapping(r *perfdata.Mmap2) {
	if r.Prot&perfdata.ProtExec == 0 || r.Owner == perfdata.NoTask || r.Owner == perfdata.Idle {
		return
	}
	kept := *r
	w := watchRecord{Record: &kept, time: r.Time}
	if v := reach.VMAOfRecord(r); !reach.IsMemory(v) {
		w.object = p.objects.Passing(reach.KeyOfRecord(r), v)
		look := objects.Job{Request: objects.RequestOf(r, v), Object: w.object}
		if p.opts.Libs || p.begins[r.Owner] || len(p.begins) >= maxLives {
			p.objects.Reach(look)
		} else {
			w.look = &look
		}
	} else if r.Name == vdsoName {
		delete(p.begins, r.Owner)
	}
	p.records = append(p.records, w)
}

func (p *perfWatch) handle(w *watchRecord) {
	switch r := w.Record.(type) {
	case *perfdata.Comm:
		p.name(r)
		if r.Exec {
			p.exec(r, w.facts)
		}
	case *perfdata.Mmap2:
		p.mmap(r, w)
	case *perfdata.Lost:
		p.forget()
	case *perfdata.Task:
		switch {
		case r.ChildPID == perfdata.NoTask:
		case r.Exited:
			p.exit(r)
		default:
			p.fork(r)
		}
	}
}

// forget forgets all processes where records were lost: which programs they executed meanwhile,
// and whether a number is still that of the same process, is not known. Files that an execution had
// not reported yet it will not report: the next mapping may be another program's.
func (p *perfWatch) forget() {
	for _, facts := range p.ended {
		facts.doubt(max(p.until, 1))
	}
	clear(p.ended)
	for _, t := range p.tasks {
		if t.exec != nil {
			t.exec.facts.doubt(max(p.until, 1)) // what was read since may be of another process
		}
		if e := t.exec; e != nil && !e.done {
			e.done = true
			if e.program == nil {
				e.program = p.objects.Missing(reason.ProcessGone)
			}
		}
	}
	clear(p.tasks)
	clear(p.begins)
	p.running.forget()
}

// ranBy returns what a process runs, which is known when the list of those that ran before is
// there. A process that is not watched ran before, unless too many are.
func (p *perfWatch) ranBy(pid uint32) *perfProgram {
	t := p.tasks[pid]
	switch {
	case t != nil && t.ran != nil:
		return t.ran
	case t != nil && (t.since != 0 || t.exec != nil), len(p.tasks) >= maxLives, p.running.now == nil:
		return nil
	}
	return &perfProgram{before: p.running.now, pid: pid}
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
	p.doubt(r.ChildTID, r.Time) // the number is another thread's from here on, or another process's
	if r.ChildPID == r.ParentPID {
		if t := p.tasks[r.ChildPID]; t != nil && t.threads > 0 {
			t.threads++
		}
		return
	}
	delete(p.tasks, r.ChildPID)
	ran := p.ranBy(r.ParentPID)
	t := p.task(r.ChildPID)
	t.ppid, t.threads, t.since, t.ran = r.ParentPID, 1, r.Time, ran
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
	if t := p.tasks[pid]; t != nil && t.exec != nil {
		t.exec.facts.doubt(at)
	}
	p.ended[pid].doubt(at)
	delete(p.ended, pid)
}

// exec takes the first record of an execution.
func (p *perfWatch) exec(r *perfdata.Comm, facts *pendingFacts) {
	p.doubt(r.OwnerPID, r.Time)
	t := p.task(r.OwnerPID)
	e := &perfExec{watch: p, facts: facts}
	t.exec, t.loaded, t.ran = e, fileOfRecord{}, new(perfProgram)
	e.ran = t.ran
	if p.only {
		return
	}
	e.event = &Event{Kind: Executed, PID: int(r.OwnerPID), PPID: int(t.ppid), Name: r.Name, Program: &Binary{Reason: reason.ProcessGone}}
	if t.since != 0 {
		e.event.Started = p.queue.clock.At(t.since)
	}
	p.queue.add(&heldEvent{Event: e.event, time: r.Time, missing: e}, cmp.Or(p.opts.patience, identityPatience))
}

func (e *perfExec) complete() bool {
	p := e.watch
	facts, will := e.facts.known(p.until)
	return e.done && (facts != nil || !will) && e.reportedProgram().complete() && (e.interpreter == nil || e.reportedLoader().complete())
}

// reportedProgram returns the program, which is known by now.
func (e *perfExec) reportedProgram() *reportedFile {
	if e.file == nil {
		e.file = &reportedFile{objects: e.watch.objects, object: e.program, queue: e.watch.queue, event: e.event, binary: e.event.Program}
	}
	return e.file
}

// reportedLoader returns the interpreter, which is known by now.
func (e *perfExec) reportedLoader() *reportedFile {
	if e.loaderFile == nil {
		e.event.Interpreter = &Binary{Path: e.interpreter.Path}
		e.loaderFile = &reportedFile{objects: e.watch.objects, object: e.interpreter, queue: e.watch.queue, event: e.event, binary: e.event.Interpreter}
	}
	return e.loaderFile
}

// finish fills in what is known of an execution by now.
func (e *perfExec) finish() {
	p := e.watch
	if e.program != nil {
		e.reportedProgram().finish()
	}
	if e.interpreter != nil {
		e.reportedLoader().finish()
	}
	if facts, _ := e.facts.known(p.until); facts != nil {
		facts.fill(e.event)
	}
	e.ran.binary = e.event.Program
}

// mmap takes a mapping of code.
func (p *perfWatch) mmap(r *perfdata.Mmap2, w *watchRecord) {
	t := p.task(r.Owner)
	e, of, o := t.exec, fileOf(r), w.object
	if w.look != nil && e != nil && !e.done {
		p.objects.Reach(*w.look)
	}
	switch {
	case e != nil && !e.done && r.Name == vdsoName:
		e.done = true
		if e.program == nil {
			e.program = p.objects.Missing(reason.NotMapped)
		}
	case o == nil:
	case e != nil && !e.done && (e.program == nil || e.of.isFile(&of)):
		e.take(r, o)
	case e != nil && !e.done:
		e.interpreter, e.loader = o, of
	case p.opts.Libs && !t.loaded.isFile(&of) && (e == nil || !e.of.isFile(&of) && !e.loader.isFile(&of)):
		t.loaded = of
		p.load(r, t, o)
	}
}

// take takes the mapping of the program.
func (e *perfExec) take(r *perfdata.Mmap2, o *objects.Object) {
	e.program, e.of = o, fileOf(r)
	if e.event != nil {
		e.event.Program.Path, e.event.Program.Deleted = o.Path, isDeleted(r.Name)
	}
}

// isDeleted reports whether a name from the kernel is that of a file without one.
func isDeleted(name string) bool {
	return len(name) > len(procfs.Deleted) && name[len(name)-len(procfs.Deleted):] == procfs.Deleted
}

// load says that a process mapped the code of a library.
func (p *perfWatch) load(r *perfdata.Mmap2, t *watchedTask, o *objects.Object) {
	name := t.name
	if name == "" {
		name = procfs.NameOf(r.Owner)
	}
	program, _ := t.ran.known(&p.queue.clock)
	ev := &Event{
		Kind: Loaded, PID: int(r.Owner), PPID: int(t.ppid), Name: name, Program: program,
		Library: &Binary{Path: o.Path, Deleted: isDeleted(r.Name)},
	}
	p.queue.add(&heldEvent{Event: ev, time: r.Time, missing: &reportedFile{objects: p.objects, object: o, queue: p.queue, event: ev, binary: ev.Library}}, cmp.Or(p.opts.patience, identityPatience))
}

// keepEnded remembers what is read of a process that has ended, and may not have been reaped: it
// holds until the number is used again.
func (p *perfWatch) keepEnded(r *perfdata.Task, facts *pendingFacts) {
	if facts == nil {
		return
	}
	if len(p.ended) >= maxEnded {
		for _, old := range p.ended {
			old.doubt(r.Time)
		}
		clear(p.ended)
	}
	if p.ended == nil {
		p.ended = map[uint32]*pendingFacts{}
	}
	p.ended[r.ChildPID] = facts
}

// maxEnded bounds the processes of keepEnded.
const maxEnded = 1 << 12

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
	ran := p.ranBy(r.ChildPID)
	if t != nil && t.exec != nil {
		p.keepEnded(r, t.exec.facts)
	}
	delete(p.tasks, r.ChildPID)
	if p.only || !p.opts.Exits {
		return
	}
	ev := &Event{Kind: Exited, PID: int(r.ChildPID), PPID: int(r.ParentPID), Exit: &Exit{}}
	if t != nil {
		ev.Name = t.name
	}
	if t != nil && t.ppid != 0 {
		ev.PPID = int(t.ppid)
	}
	if t != nil && t.since != 0 {
		ev.Started, ev.Exit.Lived = p.queue.clock.At(t.since), time.Duration(r.Time-t.since)
	}
	patience := time.Duration(0)
	if ran != nil {
		patience = ran.before.patience(0)
	}
	p.queue.add(&heldEvent{Event: ev, time: r.Time, missing: &perfEnd{ev, ran, &p.queue.clock}}, patience)
}

// perfEnd is the end of a process, which ran the program that was reported last.
type perfEnd struct {
	event *Event
	ran   *perfProgram // nil when nothing is known of it
	clock *perfring.WallClock
}

func (e *perfEnd) complete() bool { return e.ran == nil || e.ran.before.isDone() }

func (e *perfEnd) finish() {
	program, name := e.ran.known(e.clock)
	e.event.Program = program
	if e.event.Name == "" {
		e.event.Name = name
	}
}

func (p *perfWatch) halt() {
	perfring.Disable(p.events)
	perfring.Disable(p.numbers)
}

func (p *perfWatch) count(s *Stats) {
	s.Malformed += p.broken
	s.Disagreed += p.objects.Disagreements()
}

func (p *perfWatch) close() error {
	p.running.close()
	patience.Wait(p.facts.all, patience.Short) // what hangs is not waited for
	p.release()
	p.objects.Close()
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.Close())
	}
	for _, fd := range slices.Concat(p.events, p.numbers) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
