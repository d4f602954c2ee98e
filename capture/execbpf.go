package capture

import (
	"bytes"
	"errors"
	"maps"
	"sync"
	"syscall"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/reason"
)

// bpfWatch is told by programs in the kernel: see bpf.ExecWatcher. It is the
// bpf.ExecHandler of their events.
type bpfWatch struct {
	queue    *watchQueue
	programs *bpf.ExecWatcher
	objects  *objects
	cgroups  *cgroups
	// files by serial number: since the last time that all were forgotten, and those
	// from before that.
	files, olderFiles map[uint32]*object
	old               sync.WaitGroup  // objects that were forgotten, and may still be looked for
	lives             map[life]*lived // processes whose program was told, with WatchOptions.Exits
	exits             bool
	ends              map[life]*ending // processes whose end was told, until they are gone
	lost              uint64           // that was told
	homes             map[uint64]home  // by the number of the cgroup
	looked            time.Time        // for what was lost
	seen              int              // events in the last reading
	wakes             bool             // the next event wakes us
	period            time.Duration    // until the next reading, unless that wakes us
	libs              *perfWatch       // nil without WatchOptions.Libs
}

// home is where a process belongs.
type home struct{ cgroup, container string }

// maxHomes bounds the cgroups that are remembered.
const maxHomes = 1 << 12

// lived is what is remembered of a process until it ends.
type lived struct{ program *Binary }

// ending is the end of a process.
type ending struct {
	event *WatchEvent
	cpu   time.Duration
	final bool
	since uint64 // ns, CLOCK_MONOTONIC
}

// Bounds of what is remembered, and of what is waited for.
const (
	maxLives = 1 << 16
	// identityPatience is how long an execution waits for its identities. Those that the
	// kernel reads come at once, files are opened meanwhile.
	identityPatience = 300 * time.Millisecond
	// endPatience is how long an end waits for the process to be waited for and gone.
	endPatience = 500 * time.Millisecond
)

func (w *Watch) useBPF() error {
	if err := checkPIDNamespace(); err != nil && w.opts.Command != nil {
		return unusable(BPF, err)
	} else if err != nil {
		w.stats.Reduced = append(w.stats.Reduced, "the process numbers of this PID namespace: they are those of the machine")
	}
	programs, err := bpf.NewExecWatcher(bpf.ExecOptions{
		Exits:      w.opts.Exits,
		Follow:     w.opts.Command != nil,
		NoTaskWork: w.opts.noTaskWork,
		Ring:       w.opts.ring,
	})
	if err != nil {
		return unusable(BPF, err)
	}
	b := &bpfWatch{
		queue:    w.queue,
		programs: programs,
		objects:  newPassingObjects(),
		cgroups:  newCgroups(unifiedRoots),
		files:    map[uint32]*object{},
		lives:    map[life]*lived{},
		ends:     map[life]*ending{},
		homes:    map[uint64]home{},
		exits:    w.opts.Exits,
		looked:   time.Now(),
	}
	w.teller, w.stats.Backend = b, BPF
	if w.opts.Libs {
		if b.libs, err = newPerfWatch(w.queue, w.opts, true); err != nil {
			return err
		}
	}
	if c := w.opts.Command; c != nil {
		return programs.Follow(uint32(c.PID()))
	}
	return nil
}

// newPassingObjects returns objects that keep no file open: only identities are wanted.
func newPassingObjects() *objects {
	o := newObjects()
	o.keep = 0
	return o
}

func (b *bpfWatch) begin() error {
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

// Bounds of how often is looked for events while there are any: to be woken by each would
// cost who executes a program more than all else. The first one is soon told, and the more
// there are, the more of them are taken at a time. The ring wakes us before it is full.
const (
	shortPeriod = 10 * time.Millisecond
	longPeriod  = 100 * time.Millisecond
)

// pause has the next event wake us when nothing has happened for a while.
func (b *bpfWatch) pause(idle bool) (int, time.Duration, error) {
	if wakes := idle && b.seen == 0; wakes != b.wakes {
		b.wakes = wakes
		if err := b.programs.Wake(wakes); err != nil {
			return 0, 0, err
		}
		if err := b.take(); err != nil { // what came before it was said
			return 0, 0, err
		}
	}
	if b.wakes && b.seen == 0 && b.libs == nil {
		b.period = 0 // until something happens
		return -1, 0, nil
	}
	most := longPeriod
	if b.libs != nil { // whose files must be opened while their processes live
		most = glance
	}
	b.period = min(max(2*b.period, shortPeriod), most)
	return int(b.period.Milliseconds()), 0, nil
}

func (b *bpfWatch) read() (uint64, error) {
	until := monotonic() - uint64(slack)
	if err := b.take(); err != nil || b.libs == nil {
		return until, err
	}
	told, err := b.libs.read()
	return min(until, told), err
}

// take takes what the programs told.
func (b *bpfWatch) take() error {
	b.seen = 0
	if err := b.programs.Read(b); err != nil {
		return err
	}
	if time.Since(b.looked) > time.Second {
		b.looked = time.Now()
		b.forgetEnds()
		if err := b.lookForLost(); err != nil {
			return err
		}
	}
	if len(b.files) < maxFiles {
		return nil
	}
	return b.forgetFiles()
}

// forgetFiles begins anew with the files: what was introduced before is remembered until
// the next time.
func (b *bpfWatch) forgetFiles() error {
	b.olderFiles, b.files = b.files, map[uint32]*object{}
	b.old.Go(b.objects.close)
	b.objects = newPassingObjects()
	return b.programs.ForgetAll()
}

// lookForLost tells how many events found no room since the last time.
func (b *bpfWatch) lookForLost() error {
	stats, err := b.programs.Stats()
	if err != nil {
		return err
	}
	if n := stats.LostExecs + stats.LostExits; n > b.lost {
		b.queue.add(&heldEvent{WatchEvent: &WatchEvent{Kind: Missed, Lost: n - b.lost}, time: monotonic()}, 0)
		b.lost = n
	}
	return nil
}

// forgetEnds forgets processes that ended and that nobody waits for.
func (b *bpfWatch) forgetEnds() {
	now := monotonic()
	maps.DeleteFunc(b.ends, func(_ life, e *ending) bool { return e.since+uint64(reapAfter) < now })
}

func (b *bpfWatch) halt() {
	if b.libs != nil {
		b.libs.halt()
	}
}

func (b *bpfWatch) count(s *WatchStats) {
	if n, err := b.programs.Stats(); err == nil {
		s.Unfollowed, s.Uncertain = n.Unfollowed, n.Uncertain
	}
	if b.libs != nil {
		b.libs.count(s)
	}
	b.objects.mu.Lock()
	defer b.objects.mu.Unlock()
	s.Disagreed += b.objects.disagreed
}

func (b *bpfWatch) close() error {
	b.objects.close()
	b.old.Wait()
	err := b.programs.Close()
	if b.libs != nil {
		err = errors.Join(err, b.libs.close())
	}
	return err
}

// file returns the object of a serial number, nil when it is not known.
func (b *bpfWatch) file(serial uint32) *object {
	if o := b.files[serial]; o != nil {
		return o
	}
	return b.olderFiles[serial]
}

// File introduces a serial number.
func (b *bpfWatch) File(f bpf.File) {
	v := vmaOfFile(&f)
	o := b.objects.ofContent(&f, v)
	b.files[f.Serial] = o
	b.seen++
	b.objects.reach(job{object: o, vma: v, pid: f.PID, content: &f.Validity, again: func() {
		// What cannot be forgotten is not looked for again, and says why it has no
		// identity.
		_ = b.programs.Forget(f)
	}})
}

// Identity takes what the kernel read of a file.
func (b *bpfWatch) Identity(serial uint32, id buildid.ID) {
	if o := b.file(serial); o != nil {
		b.objects.learn(o, id)
	}
}

// Exec takes the execution of a program.
func (b *bpfWatch) Exec(e *bpf.Exec) {
	b.seen++
	key := life{e.PID, e.Started}
	ev := &WatchEvent{
		Kind: Executed, PID: int(e.PID), PPID: int(e.PPID), Started: b.queue.clock.atBoot(e.Started), Name: e.Name,
		Owner:   &Owner{e.UID, e.GID, e.EUID, e.EGID},
		Program: &Binary{Path: e.Path, Cut: e.PathCut, Deleted: e.Deleted},
		File:    e.File,
		ArgsCut: e.ArgsCut,
	}
	if e.Script {
		ev.Script, ev.Interp = e.File, e.Interp
	}
	if !e.ArgsUnread {
		ev.Args = splitArgs(e.Args)
	}
	ev.Cgroup, ev.Container = b.homeOf(e.Cgroup)
	program, interpreter := b.objectOf(e.Program), (*object)(nil)
	if e.Interpreter != e.Program {
		interpreter = b.objectOf(e.Interpreter)
		ev.Interpreter = &Binary{Path: interpreter.path}
	}
	objects := b.objects
	b.queue.add(&heldEvent{
		WatchEvent: ev,
		time:       e.Time,
		complete:   func() bool { return objects.settled(program) && (interpreter == nil || objects.settled(interpreter)) },
		finish: func() {
			objects.identify(program, ev.Program)
			if interpreter != nil {
				objects.identify(interpreter, ev.Interpreter)
			}
			b.remember(key, ev.Program)
		},
	}, identityPatience)
}

// homeOf returns the cgroup of this number, and the container that it belongs to.
func (b *bpfWatch) homeOf(id uint64) (string, string) {
	h, ok := b.homes[id]
	if !ok {
		h.cgroup = b.cgroups.path(id)
		h.container = container(h.cgroup)
		if len(b.homes) >= maxHomes {
			clear(b.homes)
		}
		b.homes[id] = h
	}
	return h.cgroup, h.container
}

// remember keeps what a process runs until it ends.
func (b *bpfWatch) remember(key life, program *Binary) {
	if b.exits && (len(b.lives) < maxLives || b.lives[key] != nil) {
		b.lives[key] = &lived{program}
	}
}

// objectOf returns the object of a place in a process.
func (b *bpfWatch) objectOf(p bpf.Place) *object {
	if p.Kind == bpf.InFile {
		if o := b.file(p.Serial); o != nil {
			return o
		}
	}
	return b.objects.missing(whyNoFile(p.Kind))
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
	}
	return reason.Unstable
}

// settled reports whether all is known of an object that will be.
func (s *objects) settled(o *object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !o.isFile() || !o.id.IsZero()
}

// identify tells what identity a binary has.
func (s *objects) identify(o *object, b *Binary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.ID = o.id; o.id.IsZero() {
		b.Reason = o.why
	}
}

// splitArgs returns the arguments, each of which has a NUL behind it; the last one of many
// may lack it.
func splitArgs(b []byte) []string {
	args := []string{}
	for len(b) > 0 {
		arg, rest, _ := bytes.Cut(b, []byte{0})
		args, b = append(args, string(arg)), rest
	}
	return args
}

// Exit takes the end of a process.
func (b *bpfWatch) Exit(e *bpf.Exit) {
	b.seen++
	key := life{e.PID, e.Started}
	if b.ends[key] != nil {
		return // two of its threads ended at once, and each found itself the last one
	}
	status := syscall.WaitStatus(e.Status)
	end := &End{Status: &status, Lived: time.Duration(e.Time - min(e.Time, sinceBoot(e.Started)))}
	ev := &WatchEvent{
		Kind: Exited, PID: int(e.PID), PPID: int(e.PPID), Started: b.queue.clock.atBoot(e.Started), Name: e.Name,
		Owner: &Owner{e.UID, e.GID, e.UID, e.GID}, End: end,
	}
	ev.Cgroup, ev.Container = b.homeOf(e.Cgroup)
	ending := &ending{event: ev, cpu: time.Duration(e.CPU), since: e.Time}
	b.ends[key] = ending
	b.queue.add(&heldEvent{
		WatchEvent: ev,
		time:       e.Time,
		complete:   func() bool { return ending.final },
		finish: func() {
			cpu := ending.cpu // what comes later comes too late
			end.CPU, end.Final = &cpu, ending.final
			if l := b.lives[key]; l != nil {
				ev.Program = l.program
				delete(b.lives, key)
			}
			if ending.final {
				delete(b.ends, key)
			}
		},
	}, endPatience)
}

// Ended takes what a process has run in all.
func (b *bpfWatch) Ended(e *bpf.Ended) {
	if ending := b.ends[life{e.PID, e.Started}]; ending != nil {
		ending.cpu, ending.final = time.Duration(e.CPU), true
	}
}
