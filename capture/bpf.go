package capture

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/addrspace"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/mounts"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/unwindtables"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// bpfSampler takes samples by programs in the kernel, which count stacks whose
// frames are (serial number of a file, offset): see internal/bpf. It is the
// bpf.Handler of their events.
type bpfSampler struct {
	bpfEvents
	programs *bpf.Sampler
	// files by serial number: since the last time that all were forgotten, and those
	// from before that.
	files, olderFiles map[uint32]*objects.Object
	// unread are mappings by their serial numbers, whose identity is being read.
	unread  map[uint32]*unreadFile
	reading int // of these, those that samples wait for
	// stacks by their numbers: since the last time that they were all forgotten,
	// and those from before that.
	bodies, older map[bpf.StackID]*body
	waiting       []bpfCount        // for the frames of their stacks, or for identities
	processes     map[life]*process // seen in code that they generated
	exits         *exits            // of these
	taken         time.Time         // when counts were taken
	stirred       bool              // files were introduced since the last round began
	unwinding     *unwinding        // nil when stacks are walked by frame pointers
}

// body is the frames of a stack. The places are made when it is first counted;
// those that depend on the process are made for each.
type body struct {
	frames  []bpf.Frame
	walk    profile.Walk
	places  []place
	private bool
	// index is that of the stack among those that are counted, plus 1; 0 when it is not known, or not
	// the same in all processes.
	index uint32
}

// An unreadFile is a mapping that samples are in, whose process reads its identity before it goes on.
type unreadFile struct {
	bpf.File
	since time.Time
	over  bool // nobody waits for it any more
}

// bpfCount is how often a stack was seen in an owner.
type bpfCount struct {
	stack   bpf.StackID
	owner   bpf.Task
	samples uint64
}

// life is one process for good: numbers are used again.
type life struct {
	pid     uint32
	started uint64
}

// newBPFSampler returns a sampler that closes the programs in the end.
func newBPFSampler(t *tally, opts Options, programs *bpf.Sampler) (*bpfSampler, error) {
	events, err := newBPFEvents(t, opts, programs)
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	exits, err := newExits(objects.MayKeepOpen() / 8)
	if err != nil {
		return nil, errors.Join(err, events.closeEvents(), programs.Close())
	}
	s := &bpfSampler{
		bpfEvents: events,
		programs:  programs,
		files:     map[uint32]*objects.Object{},
		unread:    map[uint32]*unreadFile{},
		bodies:    map[bpf.StackID]*body{},
		processes: map[life]*process{},
		exits:     exits,
	}
	if kernel := programs.Tables(); kernel != nil {
		t.tables = unwindtables.NewSupply(t.objects, kernel, unwindtables.NewCache(opts.CacheDir))
		s.unwinding = newUnwinding(s, t.tables)
	}
	return s, nil
}

// prepare has the kernel learn the files of what is recorded and runs, where a sample could not have the process read
// them itself: to load what does so takes as long as half of all else.
func (s *bpfSampler) prepare(ctx context.Context) error {
	if err := s.bpfEvents.prepare(ctx); err != nil || s.opts.Command != nil || ctx.Err() != nil {
		return err
	}
	if err := s.enterRunning(); err != nil {
		s.stats.Reduced = append(s.stats.Reduced, err.Error())
	}
	return nil
}

// enterRunning has the kernel learn the files of what runs, and gives it their tables:
// those that are in the cache soon, the others when they are built.
func (s *bpfSampler) enterRunning() error {
	if aside.Available() && mounts.Foreign() {
		s.programs.ReadStock(reach.ReadIterator)
	}
	if s.unwinding == nil {
		return enterRunning(s.programs, s.opts.PIDs)
	}
	running, err := enterFiles(s.programs, s.opts.PIDs)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	for i := range running {
		s.foresee(&running[i])
	}
	return err
}

// foresee has the table of a file ready that no sample was in yet.
func (s *bpfSampler) foresee(c *bpf.Code) {
	v := reach.VMAOf(&c.File)
	if reach.IsMemoryByBPF(&c.File) || c.OfMapping() && c.ID.IsZero() {
		return
	}
	o := s.objects.OfContent(&c.File, v, c.ID)
	if !o.IsFile() {
		return
	}
	if !c.ID.IsZero() {
		s.objects.Learn(o, c.ID)
	}
	s.unwinding.tables.Introduce(c.Serial, o, &reach.Request{VMA: v, PID: c.PID, Validity: &c.Validity})
}

func (s *bpfSampler) begin() error {
	s.taken = time.Now()
	return s.bpfEvents.begin()
}

func (s *bpfSampler) descriptors() []int {
	return []int{s.programs.Descriptor(), s.notices.epoll, s.exits.epoll}
}

func (s *bpfSampler) pending() bool { return s.notices.pending() }

// due returns when samples that lie in the kernel are to be taken. While none do, or all are of
// known stacks and fit, nobody is woken; but who wants to see progress is. New files wake us, and
// what else the kernel says of them soon does not.
func (s *bpfSampler) due() time.Duration {
	switch {
	case s.opts.Progress != nil || s.stirred || s.unwinding.waits():
		return perfring.LongestWait
	case s.programs.Counted() > 0 || s.reading > 0:
		return max(takeAfter-time.Since(s.taken), 0)
	}
	return perfring.Forever
}

// takeAfter is how long counts stay in the kernel while there is room.
const takeAfter = time.Second

func (s *bpfSampler) round() error {
	s.stirred = false
	if err := s.exits.each(s.exited); err != nil {
		return err
	}
	if s.unwinding != nil {
		s.unwinding.goOn(false)
	}
	if time.Since(s.taken) < takeAfter && s.programs.Counted() < bpf.MaxCounts/2 {
		return s.programs.Read(s)
	}
	s.reap()
	if s.unwinding != nil {
		s.unwinding.tables.Retry()
	}
	return errors.Join(s.look(), s.take())
}

// take takes the counts out of the kernel.
func (s *bpfSampler) take() error {
	s.taken = time.Now()
	err := s.programs.Counts(func(stack bpf.StackID, o bpf.Task, n uint64) {
		s.waiting = append(s.waiting, bpfCount{stack, o, n})
	})
	if err != nil {
		return err
	}
	// The frames of what is counted were sent before.
	if err := s.programs.Read(s); err != nil {
		return err
	}
	s.countWaiting(identityPatience)
	return s.forget()
}

// identityPatience is how long samples wait for an identity. A reading of which they are not the reason
// does not count for them: see WORK_NS of filetable.h.
const identityPatience = 1500 * time.Millisecond

// maxUnread is how many counts wait for identities.
const maxUnread = 1 << 14

// countWaiting counts what does not have to wait any more. Where an identity has not come in this time,
// nobody waits for it.
func (s *bpfSampler) countWaiting(patience time.Duration) {
	s.giveUpUnread(patience)
	kept := s.waiting[:0]
	for _, c := range s.waiting {
		_, waits := s.unreadIn(s.body(c.stack))
		if waits && len(kept) < maxUnread || !s.count(c) {
			kept = append(kept, c) // there was no room for the frames: they come again
		}
	}
	s.waiting = kept
}

// giveUpUnread ends the waiting for identities that have not come in time. A thread that sleeps in the
// kernel reads none, nor does one that exits.
func (s *bpfSampler) giveUpUnread(patience time.Duration) {
	if s.reading == 0 {
		return
	}
	for serial, f := range s.unread {
		if !f.over && time.Since(f.since) >= patience {
			s.reading--
			f.over = true
			s.unwinding.resume(serial)
		}
	}
}

// unreadIn returns the first file of a stack that waits for its identity.
func (s *bpfSampler) unreadIn(b *body) (serial uint32, waits bool) {
	if b == nil || s.reading == 0 {
		return 0, false
	}
	for _, f := range b.frames {
		if f.Kind == bpf.InFile && s.isUnread(f.Serial) {
			return f.Serial, true
		}
	}
	return 0, false
}

// isUnread reports whether the identity of a file may still come.
func (s *bpfSampler) isUnread(serial uint32) bool {
	f := s.unread[serial]
	return f != nil && !f.over
}

// maxBodies bounds the stacks that are remembered. The kernel sends again what it
// sees again.
const maxBodies = 1 << 14

// maxFiles bounds the serial numbers that are remembered. A file gets another one
// each time that it comes back into a full table.
const maxFiles = 1 << 16

// forget forgets what was sent before the last time that it forgot.
func (s *bpfSampler) forget() error {
	if len(s.files)+len(s.unread) >= maxFiles {
		s.forgetFiles()
		if err := s.programs.ForgetAll(); err != nil {
			return err
		}
	}
	if len(s.bodies) < maxBodies && (s.unwinding == nil || !s.unwinding.full()) {
		return nil
	}
	s.older, s.bodies = s.bodies, map[bpf.StackID]*body{}
	if s.unwinding != nil {
		s.unwinding.forget()
	}
	return s.programs.Resend()
}

func (s *bpfSampler) forgetFiles() {
	s.olderFiles, s.files = s.files, map[uint32]*objects.Object{}
	s.giveUpUnread(0)
	clear(s.unread)
	if s.unwinding != nil {
		s.unwinding.tables.Forget(func(serial uint32) bool { return s.olderFiles[serial] == nil })
	}
}

// file returns the object of a serial number, nil when it is not known.
func (s *bpfSampler) file(serial uint32) *objects.Object {
	if o := s.files[serial]; o != nil {
		return o
	}
	return s.olderFiles[serial]
}

// File introduces a serial number.
func (s *bpfSampler) File(f bpf.File) {
	s.stirred = true
	if reach.IsMemoryByBPF(&f) {
		s.files[f.Serial] = s.objects.Missing(reason.Anonymous)
		if s.unwinding != nil {
			s.unwinding.tables.IntroduceMemory(f.Serial)
		}
		return
	}
	if f.OfMapping() {
		if s.file(f.Serial) == nil && s.unread[f.Serial] == nil { // two CPUs may have met it at once
			s.unread[f.Serial] = &unreadFile{File: f, since: time.Now()}
			s.reading++
		}
		return
	}
	s.introduce(f, buildid.ID{})
}

// introduce looks for the file of a serial number, with the identity that the kernel read if
// that is what there is to go by.
func (s *bpfSampler) introduce(f bpf.File, id buildid.ID) {
	v := reach.VMAOf(&f)
	o := s.objects.OfContent(&f, v, id)
	if s.files[f.Serial] = o; !o.IsFile() {
		return
	}
	j := objects.Job{Request: reach.Request{VMA: v, PID: f.PID, Validity: &f.Validity}, Object: o, Again: func() {
		// A file that cannot be forgotten is not looked for again, and says why it has no
		// identity.
		_ = s.programs.Forget(f)
	}}
	if s.unwinding == nil {
		s.objects.Reach(j)
		return
	}
	t := s.unwinding.tables
	t.Expect(o)
	if !s.objects.Reach(j) {
		t.Reached(o)
	}
	t.Introduce(f.Serial, o, nil)
}

// Identity takes what the kernel read of a file.
func (s *bpfSampler) Identity(serial uint32, id buildid.ID) {
	f := s.unread[serial]
	if f != nil {
		delete(s.unread, serial)
		if !f.over {
			s.reading--
		}
		s.stirred = true
		s.introduce(f.File, id)
	}
	if o := s.file(serial); o != nil && o.IsFile() {
		s.objects.Learn(o, id)
		if s.unwinding != nil {
			s.unwinding.tables.Identified(o)
		}
	}
	if f != nil {
		s.unwinding.resume(serial)
	}
}

// Stack takes the frames of a stack.
func (s *bpfSampler) Stack(id bpf.StackID, frames []bpf.Frame, end unwind.End) {
	s.bodies[id] = &body{frames: frames, walk: walkOf(frames, end)}
}

// walkOf says how the frames of a stack were found.
func walkOf(frames []bpf.Frame, end unwind.End) profile.Walk {
	w, user := profile.Walk{End: end}, 0
	for _, f := range frames {
		if f.Kind != bpf.InKernel {
			user++
			w.Methods = w.Methods.With(f.Method)
		}
	}
	switch {
	case end == unwind.EndUnknown || end == unwind.FramePointers:
		return framePointers(user)
	case end == unwind.NotMapped && user == 0 && len(frames) > 0:
		// In the kernel, with the memory of user code gone or not there yet: execve and exit.
		w.End = unwind.NoUserStack
	}
	return w
}

// Copy takes a sample that is to be finished.
func (s *bpfSampler) Copy(c *bpf.Copy) {
	if s.unwinding != nil {
		s.unwinding.take(c)
	}
}

// Space takes the executable memory of a process, which comes with such samples.
func (s *bpfSampler) Space(space *bpf.Space) {
	if s.unwinding != nil {
		s.unwinding.keepSpace(space)
	}
}

// count counts samples of a stack. It reports whether the frames of the stack are known.
func (s *bpfSampler) count(c bpfCount) bool {
	b := s.body(c.stack)
	if b == nil {
		return false
	}
	n, labels := total{int64(c.samples), int64(c.samples) * int64(s.perSample)}, s.labels(&c.owner)
	if b.index != 0 && s.addAgain(b.index-1, labels, n, c.owner.Seen) {
		return true
	}
	s.tally.add(s.placesOf(b, &c.owner), b.walk, labels, n, c.owner.Seen)
	if !b.private {
		b.index = s.stacks.latest.stack + 1
	}
	return true
}

// body returns the frames of a stack, nil when they are not known.
func (s *bpfSampler) body(id bpf.StackID) *body {
	if b := s.bodies[id]; b != nil {
		return b
	}
	return s.older[id]
}

// placesOf says what the frames of a stack are in an owner.
func (s *bpfSampler) placesOf(b *body, o *bpf.Task) []place {
	if b.places != nil && !b.private {
		return b.places
	}
	b.places = slices.Grow(b.places[:0], len(b.frames))
	for _, f := range b.frames {
		if f.Kind == bpf.Generated || f.Kind == bpf.InFile && s.unread[f.Serial] != nil {
			b.private = true // another time it may have an identity
		}
		b.places = append(b.places, s.place(f, o))
	}
	return b.places
}

// place says what a frame is.
func (s *bpfSampler) place(f bpf.Frame, o *bpf.Task) place {
	switch f.Kind {
	case bpf.InKernel:
		return s.inKernel(addr.Abs(f.At))
	case bpf.InFile:
		if object := s.file(f.Serial); object != nil {
			return place{object, f.At}
		}
		if u := s.unread[f.Serial]; u != nil {
			return place{s.objects.Missing(reason.FileTimes), f.At - uint64(u.Offset) + uint64(u.Start)}
		}
	case bpf.InVDSO, bpf.InVDSO32:
		return place{s.image(f.Kind == bpf.InVDSO, o), f.At}
	case bpf.Generated:
		if from, ok := s.original(s.process(o), addr.Abs(f.At)); ok {
			return from
		}
		return place{s.generated(o), f.At}
	case bpf.NotMapped:
		if addrspace.IsVsyscall(addr.Abs(f.At)) {
			return place{s.objects.Missing(reason.Vsyscall), f.At}
		}
		return garbage(s.objects.Missing(reason.NotMapped))
	case bpf.Written:
		return place{s.objects.Missing(reason.FileWritten), f.At}
	case bpf.Unread:
		return place{s.objects.Missing(reason.FileTimes), f.At}
	case bpf.NotCode:
		return garbage(s.objects.Missing(reason.NotExecutable))
	case bpf.NoEntry:
		return place{s.objects.Missing(reason.TableFull), f.At}
	}
	return place{s.objects.Missing(reason.Unstable), f.At}
}

// image returns the object of the vdso. That of 64-bit processes is the one of this
// process; any other is looked for in the process.
func (s *bpfSampler) image(wide bool, o *bpf.Task) *objects.Object {
	if v, ok := reach.OwnVDSO(); ok && wide {
		return s.objects.VDSO(v, o.PID)
	}
	if known := s.objects.Image(wide); known != nil {
		return known
	}
	end := s.looks.Take(procfs.AccountOf(o.PID))
	if end == nil {
		return s.objects.Missing(reason.NotRead)
	}
	defer end()
	vmas, err := reach.Mappings(int(o.PID))
	i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Name == "[vdso]" })
	if err != nil || i < 0 {
		return s.objects.Missing(reason.ProcessGone)
	}
	return s.objects.VDSO(vmas[i], o.PID)
}

// generated returns the object of the code that a process generated, and has its
// map read when the process ends.
func (s *bpfSampler) generated(o *bpf.Task) *objects.Object {
	p := s.process(o)
	g := s.objects.Generated(&p.Process)
	if g.Code == nil || g.Code.IsSampled() {
		return g
	}
	g.Code.See()
	if err := s.exits.watch(p); errors.Is(err, unix.ESRCH) {
		s.exited(p)
	} else if err != nil {
		p.ended = perfring.Monotonic() // nobody will report it: it is forgotten soon, and met anew
	}
	return g
}

// exited reads the map of a process that has ended.
func (s *bpfSampler) exited(p *process) {
	p.ended = perfring.Monotonic()
	p.Generated.Code.Read()
	p.Generated.Code.Release()
}

// reap forgets the processes that ended long ago: nothing more is counted in them.
func (s *bpfSampler) reap() {
	now := perfring.Monotonic()
	maps.DeleteFunc(s.processes, func(_ life, p *process) bool {
		return p.ended != 0 && p.ended+uint64(reapAfter) < now
	})
}

// process returns the process that generated code is in.
func (s *bpfSampler) process(o *bpf.Task) *process {
	key := life{o.PID, o.Started}
	p := s.processes[key]
	if p == nil {
		p = newProcess(o.PID, sinceBoot(o.Started), o.Process)
		p.Account = procfs.AccountOf(o.PID)
		s.processes[key] = p
	}
	return p
}

// sinceBoot turns a time of CLOCK_BOOTTIME, which goes on while the machine is
// suspended, into one of CLOCK_MONOTONIC. Both in ns.
func sinceBoot(t uint64) uint64 {
	now := perfring.Monotonic() // first: what is read later is larger
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	suspended := uint64(boot.Nano()) - now
	return max(t, suspended) - suspended
}

func (s *bpfSampler) finish() {
	err := s.take()
	s.countWaiting(0)
	if s.unwinding != nil {
		s.unwinding.end()
		s.stats.Unwind = s.unwinding.count(s.programs.Tables().Stats())
	}
	for _, c := range s.waiting {
		s.stats.Lost += c.samples
	}
	s.bodies, s.older, s.waiting = nil, nil, nil // room for symbols
	n, statsErr := s.programs.Stats()
	s.stats.Lost += n.LostCounts
	s.stats.Unfollowed = n.Unfollowed
	s.stats.Table = tableStats(n)
	if errors.Join(err, statsErr) != nil {
		s.stats.Malformed++
	}
}

func (s *bpfSampler) close() error {
	return errors.Join(s.closeEvents(), s.exits.close(), s.programs.Close())
}

// enterRunning has the kernel learn the files of these processes, or of all that run,
// before there are samples. Where it cannot be had, files are learned as samples come.
func enterRunning(s *bpf.Sampler, pids []int) error {
	_, err := patience.InTime(patience.EveryProcess, enterTime, func() (struct{}, error) { return struct{}{}, s.Enter(numbers(pids)...) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// enterFiles is enterRunning that returns the files.
func enterFiles(s *bpf.Sampler, pids []int) ([]bpf.Code, error) {
	return patience.InTime(patience.EveryProcess, enterTime, func() ([]bpf.Code, error) { return s.EnterFiles(numbers(pids)...) })
}

// enterTime is how long the kernel may take to run through all processes and read files in
// their memory. It leaves out what may not answer, as far as the mapping stays what it was.
const enterTime = 4 * time.Second

func numbers(pids []int) []uint32 {
	list := make([]uint32, len(pids))
	for i, pid := range pids {
		list[i] = uint32(pid)
	}
	return list
}

func (s *bpfSampler) cost() (bpf.Cost, error) { return s.programs.Cost() }
