package execwatch

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/reason"
)

// bpfWatch learns from programs in the kernel: see bpf.ExecWatcher. It is the
// bpf.ExecHandler of their events.
type bpfWatch struct {
	queue    *watchQueue
	programs *bpf.ExecWatcher
	objects  *objects.Set
	cgroups  *procfs.Cgroups
	// files by serial number: since the last time that all were forgotten, and those
	// from before that.
	files, olderFiles map[uint32]*objects.Object
	old               sync.WaitGroup   // objects that were forgotten, and may still be looked for
	lives             map[life]*Binary // of processes whose program was reported, with WatchOptions.Exits
	// Events that were reported, and may be overwritten.
	spareExecs spare[toldExec]
	spareEnds  spare[reportedEnd]
	spareLives spare[Binary]
	args       map[string][]string // that others had before; nil where events are not overwritten
	running    runningPrograms     // of other processes
	since      uint64              // when events were lost last, ns, CLOCK_MONOTONIC
	exits      bool
	ends       map[life]*reportedEnd // processes whose end was reported, until they are gone
	lost       uint64                // that was reported
	homes      map[uint64]home       // by the number of the cgroup
	swept      time.Time             // ends
	seen       int                   // events in the last reading
	wakes      bool                  // the next event wakes us
	period     time.Duration         // until the next reading, unless that wakes us
	libs       *perfWatch            // nil without WatchOptions.Libs
	command    uint32                // that was released; 0 for none
	released   life                  // the command, when it has executed its program
	before     uint64                // ns, that it had run by then
	from       uint64                // when it did, ns, CLOCK_MONOTONIC
}

// life is one process for good: numbers are used again.
type life struct {
	pid     uint32
	started uint64
}

// home is where a process belongs.
type home struct{ cgroup, container string }

// maxHomes bounds the cgroups that are remembered.
const maxHomes = 1 << 12

// Bounds of what is remembered, and of what is waited for.
const (
	maxLives = 1 << 16
	// maxArgs and longArgs (bytes) bound the arguments that are remembered.
	maxArgs, longArgs = 1 << 10, 256
	// maxFiles bounds the serial numbers that are remembered. A file gets another one each time that
	// it comes back into a full table.
	maxFiles = 1 << 16
	// forgetAfter is how long a process that has ended is remembered.
	forgetAfter = 10 * time.Second
	// identityPatience is how long an execution waits for its identities. Those that the
	// kernel reads come at once, files are opened meanwhile.
	identityPatience = 300 * time.Millisecond
	// endPatience is how long an end waits for the process to be waited for and gone.
	endPatience = 500 * time.Millisecond
)

func (w *Watch) useBPF() error {
	if err := procfs.CheckPIDNamespace(); err != nil && w.opts.Command != nil {
		return backend.Unusable(backend.BPF, err)
	} else if err != nil {
		w.stats.Reduced = append(w.stats.Reduced, "the process numbers of this PID namespace: they are those of the machine")
	}
	programs, err := bpf.NewExecWatcher(bpf.ExecOptions{
		Exits:      w.opts.Exits,
		Follow:     w.opts.Command != nil,
		NoTaskWork: w.opts.NoTaskWork,
		Ring:       w.opts.ring,
	})
	if err != nil {
		return backend.Unusable(backend.BPF, err)
	}
	b := &bpfWatch{
		queue:    w.queue,
		programs: programs,
		objects:  objects.NewPassing(),
		cgroups:  procfs.NewCgroups(procfs.UnifiedRoots),
		files:    map[uint32]*objects.Object{},
		lives:    map[life]*Binary{},
		ends:     map[life]*reportedEnd{},
		homes:    map[uint64]home{},
		exits:    w.opts.Exits,
		swept:    time.Now(),
	}
	if w.opts.Reuse {
		b.args = map[string][]string{}
	}
	w.teller, w.stats.Backend = b, backend.BPF
	b.running.wanted = b.exits && w.opts.Command == nil && procfs.CheckPIDNamespace() == nil
	if w.opts.Libs {
		if b.libs, err = newPerfWatch(w.queue, w.opts, true); err != nil {
			return err
		}
	}
	if c := w.opts.Command; c != nil {
		b.command = uint32(c.PID())
		return programs.Follow(b.command)
	}
	return nil
}

func (b *bpfWatch) begin() error {
	b.running.take()
	if b.libs != nil {
		return b.libs.begin()
	}
	return nil
}

func (b *bpfWatch) descriptors() []int {
	fds := []int{b.programs.Descriptor()}
	if b.libs != nil {
		fds = append(fds, b.libs.descriptors()...)
	}
	return fds
}

func (b *bpfWatch) pending() bool { return b.libs != nil && b.libs.pending() }

// Bounds of how often is looked for events while there are any: to be woken by each would
// cost who executes a program more than all else. The first one is soon reported, and the more
// there are, the more of them are taken at a time. The ring wakes us before it is full.
const (
	shortPeriod = 10 * time.Millisecond
	longPeriod  = 100 * time.Millisecond
)

// pause has the next event wake us when nothing has happened for a while.
func (b *bpfWatch) pause(idle bool) (time.Duration, error) {
	if wakes := idle && b.seen == 0; wakes != b.wakes {
		b.wakes = wakes
		if err := b.programs.Wake(wakes); err != nil {
			return 0, err
		}
		if err := b.take(); err != nil { // what came before it was said
			return 0, err
		}
	}
	if b.wakes && b.seen == 0 && b.libs == nil {
		b.period = 0 // until something happens
		return perfring.Forever, nil
	}
	most := longPeriod
	if b.libs != nil { // whose files must be opened while their processes live
		most = perfring.Glance
	}
	b.period = min(max(2*b.period, shortPeriod), most)
	return b.period, nil
}

func (b *bpfWatch) read() (uint64, error) {
	until := perfring.Monotonic() - uint64(slack)
	if err := b.take(); err != nil || b.libs == nil {
		return until, err
	}
	reported, err := b.libs.read()
	return min(until, reported), err
}

// take takes what the programs reported.
func (b *bpfWatch) take() error {
	b.seen = 0
	if err := b.programs.Read(b); err != nil {
		return err
	}
	if err := b.lookForLost(); err != nil {
		return err
	}
	if time.Since(b.swept) > time.Second {
		b.swept = time.Now()
		b.forgetEnds()
	}
	if len(b.files) < maxFiles {
		return nil
	}
	return b.forgetFiles()
}

// forgetFiles begins anew with the files: what was introduced before is remembered until
// the next time.
func (b *bpfWatch) forgetFiles() error {
	b.olderFiles, b.files = b.files, map[uint32]*objects.Object{}
	b.old.Go(b.objects.Close)
	b.objects = objects.NewPassing()
	return b.programs.ForgetAll()
}

// lookForLost reports how many events found no room since the last time. It looks after
// each reading: no event may come after those that were lost, and the watch may end.
func (b *bpfWatch) lookForLost() error {
	n, err := b.programs.Lost()
	if err != nil {
		return err
	}
	if n > b.lost {
		b.queue.add(&heldEvent{Event: &Event{Kind: Missed, Lost: n - b.lost}, time: perfring.Monotonic()}, 0)
		b.lost, b.since = n, perfring.Monotonic()
		clear(b.lives) // they may have executed other programs
		b.running.forget()
	}
	b.running.renew()
	return nil
}

// forgetEnds forgets processes that ended and that nobody waits for.
func (b *bpfWatch) forgetEnds() {
	now := perfring.Monotonic()
	maps.DeleteFunc(b.ends, func(_ life, e *reportedEnd) bool { return e.held.time+uint64(forgetAfter) < now })
}

func (b *bpfWatch) halt() {
	if b.libs != nil {
		b.libs.halt()
	}
}

func (b *bpfWatch) count(s *Stats) {
	if n, err := b.programs.Stats(); err == nil {
		s.Unfollowed, s.Uncertain = n.Unfollowed, n.Uncertain
	}
	if b.libs != nil {
		b.libs.count(s)
	}
	s.Disagreed += b.objects.Disagreements()
}

func (b *bpfWatch) close() error {
	b.running.close()
	b.objects.Close()
	b.old.Wait()
	err := b.programs.Close()
	if b.libs != nil {
		err = errors.Join(err, b.libs.close())
	}
	return err
}

// file returns the object of a serial number, nil when it is not known.
func (b *bpfWatch) file(serial uint32) *objects.Object {
	if o := b.files[serial]; o != nil {
		return o
	}
	return b.olderFiles[serial]
}

// File introduces a serial number.
func (b *bpfWatch) File(f bpf.File) {
	v := reach.VMAOf(&f)
	o := b.objects.OfContent(&f, v, buildid.ID{})
	b.files[f.Serial] = o
	b.seen++
	if f.OfMapping() {
		b.objects.Unproven(o, &f.Validity)
		return
	}
	b.objects.Reach(objects.Job{Request: reach.Request{VMA: v, PID: f.PID, Validity: &f.Validity}, Object: o, Again: func() {
		// A file that cannot be forgotten is not looked for again, and says why it has no
		// identity.
		_ = b.programs.Forget(f)
	}})
}

// Identity takes what the kernel read of a file.
func (b *bpfWatch) Identity(serial uint32, id buildid.ID) {
	if o := b.file(serial); o != nil {
		b.objects.Learn(o, id)
	}
}

// toldExec is the execution of a program, in one piece of memory.
type toldExec struct {
	held                 heldEvent
	event                Event
	owner                Credentials
	binary, loader       Binary
	watch                *bpfWatch
	key                  life
	program, interpreter reportedFile // interpreter.object is nil for none
}

// Exec takes the execution of a program.
func (b *bpfWatch) Exec(e *bpf.Exec) {
	b.seen++
	if e.PID == b.command && b.from == 0 {
		b.released, b.before, b.from = life{e.PID, e.Started}, e.CPU, e.Time
	}
	x := b.spareExecs.take()
	*x = toldExec{
		event: Event{
			Kind: Executed, PID: int(e.PID), PPID: int(e.PPID), Started: b.queue.clock.AtBoot(e.Started), Name: e.Name,
			File:    e.File,
			ArgsCut: e.ArgsCut,
		},
		owner:  Credentials{e.UID, e.GID, e.EUID, e.EGID},
		binary: Binary{Path: e.Path, Cut: e.PathCut, Deleted: e.Deleted},
		watch:  b,
		key:    life{e.PID, e.Started},
	}
	ev := &x.event
	ev.Credentials, ev.Program = &x.owner, &x.binary
	x.program = reportedFile{objects: b.objects, object: b.objectOf(e.Program), queue: b.queue, event: ev, binary: &x.binary}
	ev.Cgroup, ev.Container = b.homeOf(e.Cgroup)
	if e.Script {
		ev.Script, ev.Interp = e.File, e.Interp
	}
	if !e.ArgsUnread {
		ev.Args = b.argsOf(e.Args)
	}
	if e.Interpreter != e.Program {
		o := b.objectOf(e.Interpreter)
		x.interpreter = reportedFile{objects: b.objects, object: o, queue: b.queue, event: ev, binary: &x.loader}
		x.loader.Path = o.Path
		ev.Interpreter = &x.loader
	}
	x.held = heldEvent{Event: ev, time: e.Time, missing: x}
	b.queue.add(&x.held, identityPatience)
}

func (x *toldExec) complete() bool {
	return x.program.complete() && (x.interpreter.object == nil || x.interpreter.complete())
}

func (x *toldExec) finish() {
	x.program.finish()
	if x.interpreter.object != nil {
		x.interpreter.finish()
	}
	if x.held.time >= x.watch.since {
		x.watch.remember(x.key, x.binary)
	}
}

func (x *toldExec) reuse() { x.watch.spareExecs.give(x) }

// homeOf returns the cgroup of this number, and the container that it belongs to.
func (b *bpfWatch) homeOf(id uint64) (string, string) {
	h, ok := b.homes[id]
	if !ok {
		h.cgroup, h.container = b.cgroups.Home(id)
		if len(b.homes) >= maxHomes {
			clear(b.homes)
		}
		b.homes[id] = h
	}
	return h.cgroup, h.container
}

// remember keeps what a process runs until it ends.
func (b *bpfWatch) remember(key life, program Binary) {
	known := b.lives[key]
	if !b.exits || known == nil && len(b.lives) >= maxLives {
		return
	}
	if known == nil {
		known = b.spareLives.take()
		b.lives[key] = known
	}
	*known = program
	known.pending = nil
}

// objectOf returns the object of a place in a process.
func (b *bpfWatch) objectOf(p bpf.Object) *objects.Object {
	if p.Kind == bpf.InFile {
		if o := b.file(p.Serial); o != nil {
			return o
		}
	}
	return b.objects.Missing(whyNoFile(p.Kind))
}

// whyNoFile says why it is not known which file is somewhere.
func whyNoFile(kind bpf.FrameKind) reason.Reason {
	switch kind {
	case bpf.NotMapped:
		return reason.NotMapped
	case bpf.NotCode:
		return reason.NotExecutable
	case bpf.Generated, bpf.InVDSO, bpf.InVDSO32:
		return reason.Anonymous
	case bpf.NoEntry, bpf.InFile:
		return reason.TableFull
	case bpf.Written:
		return reason.FileWritten
	case bpf.Unread:
		return reason.FileTimes
	}
	return reason.Unstable
}

// identify gives a binary the identity of its file, of which these facts are known.
func (b *Binary) identify(o evidence, f *objects.Facts) {
	if b.ID = f.ID; f.ID.IsZero() {
		b.Reason = f.Why
		return
	}
	b.key, b.seen, b.Content, b.trusted = f.Key, f.Seen, f.Content, f.Trusted
	if f.AwaitsContent {
		b.pending = o
	}
	b.Contested, b.Different = b.Contested || f.Several, b.Different || f.Differ
}

// argsOf returns the arguments, which are those of other events where these may not be changed.
func (b *bpfWatch) argsOf(text []byte) []string {
	if args, ok := b.args[string(text)]; ok {
		return args
	}
	args := splitArgs(text)
	if b.args == nil || len(text) > longArgs {
		return args
	}
	if len(b.args) >= maxArgs {
		clear(b.args)
	}
	b.args[string(text)] = args
	return args
}

// splitArgs returns the arguments, each of which has a NUL behind it; the last one of many
// may lack it.
func splitArgs(b []byte) []string {
	text := string(b)
	args := make([]string, 0, bytes.Count(b, []byte{0})+1)
	for len(text) > 0 {
		arg, rest, _ := strings.Cut(text, "\x00")
		args, text = append(args, arg), rest
	}
	return args
}

// reportedEnd is the end of a process.
type reportedEnd struct {
	held   heldEvent
	event  Event
	owner  Credentials
	end    Exit
	status syscall.WaitStatus
	cpu    time.Duration // as far as it is known, and whether that is all
	final  bool
	last   time.Duration // what was reported
	watch  *bpfWatch
	key    life
	ran    *programList // that it may be in; nil for none
	lived  *Binary      // the program, of an execution that was reported
}

// Exit takes the end of a process.
func (b *bpfWatch) Exit(e *bpf.Exit) {
	b.seen++
	key := life{e.PID, e.Started}
	if b.ends[key] != nil {
		return // two of its threads ended at once, and each found itself the last one
	}
	began := b.queue.clock.SinceBoot(e.Started)
	if key == b.released {
		began = b.from
	}
	x := b.spareEnds.take()
	*x = reportedEnd{
		event: Event{
			Kind: Exited, PID: int(e.PID), PPID: int(e.PPID), Started: b.queue.clock.AtBoot(e.Started), Name: e.Name,
		},
		owner:  Credentials{e.UID, e.GID, e.UID, e.GID},
		end:    Exit{Lived: time.Duration(e.Time - min(e.Time, began))},
		status: syscall.WaitStatus(e.Status),
		cpu:    time.Duration(e.CPU),
		watch:  b,
		key:    key,
		ran:    b.running.now,
	}
	x.end.Status = &x.status
	ev := &x.event
	ev.Credentials, ev.Exit = &x.owner, &x.end
	ev.Cgroup, ev.Container = b.homeOf(e.Cgroup)
	b.ends[key] = x
	x.held = heldEvent{Event: ev, time: e.Time, missing: x}
	b.queue.add(&x.held, x.ran.patience(endPatience))
}

func (x *reportedEnd) complete() bool {
	return x.final && (x.ran.isDone() || x.watch.lives[x.key] != nil)
}

func (x *reportedEnd) finish() {
	b := x.watch
	x.last = x.cpu // what comes later comes too late
	if x.key == b.released {
		x.last = max(0, x.last-time.Duration(b.before))
	}
	x.end.CPU, x.end.Final = &x.last, x.final
	if program := b.lives[x.key]; program != nil {
		x.event.Program, x.lived = program, program
		delete(b.lives, x.key)
	} else if p := x.ran.of(x.key.pid); p != nil && p.started == x.key.started-x.key.started%startTick {
		x.event.Program = p.binary
	}
	if x.final {
		delete(b.ends, x.key)
	}
}

// reuse leaves an end alone that is still compared with what comes.
func (x *reportedEnd) reuse() {
	if x.lived != nil {
		x.watch.spareLives.give(x.lived)
	}
	if x.final {
		x.watch.spareEnds.give(x)
	} else {
		x.lived = nil
	}
}

// Ended takes what a process has run in all.
func (b *bpfWatch) Ended(e *bpf.Ended) {
	if x := b.ends[life{e.PID, e.Started}]; x != nil {
		x.cpu, x.final = time.Duration(e.CPU), true
	}
}
