package capture

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/regular"
	"hallmark/procmap"
	"hallmark/reason"
)

// resolver opens mapped files while their processes live, and reads their
// identities, beside the recording: opening a file may wait for a disk or a
// network, and a ring buffer does not. A file that takes long keeps no other one waiting.
type resolver struct {
	objects *objects
	wake    *sync.Cond // on mu
	mu      sync.Mutex
	own     lane // of processes of root and of this user
	others  lane // of all other processes
	stopped bool
	workers sync.WaitGroup
	ended   atomic.Uint64 // jobs
	most    time.Duration // that stop waits while jobs end
	least   time.Duration // that it waits for one to end
	over    bool          // what is found comes too late. Under objects.mu
}

// job is a mapping of process pid through which an object may be reached.
type job struct {
	object *object
	want   buildid.ID // what the kernel read from the mapped pages, zero if it read none
	vma    procmap.VMA
	pid    uint32
	// mapped is when the mapping was there: what changed later may have changed under it.
	mapped time.Time
	// content tells what was mapped, where BPF told it: then neither the inode nor
	// the identity has to prove that it is the right file. Else it is nil.
	content *bpf.Validity
	// media are what was in the machine's disks before there was anything to judge.
	media media
	// recheck says that the object was reached before, and may show another file here.
	recheck bool
	// byIdentity says that the identity decides in a helper, which is not told want.
	byIdentity bool
	// claim says that a file without notes is not hashed.
	claim bool
	// again is called when the file could not be reached, nil for no call.
	again func()
	// done is called when the job is over, nil for no call.
	done func()
}

const (
	// resolverWorkers open files of a lane at a time; they mostly wait.
	resolverWorkers = 4
	// slowJob is how long a worker waits for its job before it takes the next one.
	slowJob = 50 * time.Millisecond
	// maxSlow bounds the jobs of a lane that nobody waits for, and maxFar those of the helper.
	maxSlow, maxFar = 64, 8
)

func newResolver(o *objects) *resolver {
	r := &resolver{objects: o, most: patience.Long, least: patience.Short}
	r.wake = sync.NewCond(&r.mu)
	for _, l := range []*lane{&r.own, &r.others} {
		l.slow, l.far = make(chan struct{}, maxSlow), make(chan struct{}, maxFar)
		for range resolverWorkers {
			r.workers.Go(func() { r.run(l) })
		}
	}
	return r
}

// ask queues a job.
func (r *resolver) ask(j job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := procfs.UserOf(j.pid)
	r.laneOf(owner).add(owner, j)
	r.wake.Broadcast() // the workers of both lanes wait
}

// stop returns when every job that was asked for is done. A file system that does not answer
// is not waited for: then the objects do not change any more all the same.
func (r *resolver) stop() {
	r.mu.Lock()
	again := r.stopped
	r.stopped = true
	r.wake.Broadcast()
	r.mu.Unlock()
	if again {
		return
	}
	r.wait()
	r.mu.Lock()
	r.own.clear()
	r.others.clear()
	r.mu.Unlock()
	r.objects.mu.Lock()
	r.over = true
	r.objects.mu.Unlock()
}

// wait waits until all jobs are done, or none has ended for a while: what hangs is not waited
// for, and what is only slow is.
func (r *resolver) wait() {
	for until := time.Now().Add(r.most); ; {
		before := r.ended.Load()
		if patience.Wait(&r.workers, min(r.least, r.most)) || r.ended.Load() == before || time.Now().After(until) {
			return
		}
	}
}

func (r *resolver) run(l *lane) {
	for {
		j, ok := r.next(l)
		if !ok {
			return
		}
		done := make(chan struct{})
		r.workers.Go(func() {
			defer close(done)
			if j.recheck {
				r.recheck(j)
				r.ended.Add(1)
			} else {
				r.resolve(j, l)
			}
		})
		l.waitOrLeave(done)
	}
}

// waitOrLeave waits for a job, but no longer than a short while if there is room to leave it.
func (l *lane) waitOrLeave(done chan struct{}) {
	timer := time.NewTimer(slowJob)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	select {
	case l.slow <- struct{}{}:
		go func() {
			<-done
			<-l.slow
		}()
	case <-done:
	}
}

func (r *resolver) next(l *lane) (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(l.turns) == 0 {
		if r.stopped {
			return job{}, false
		}
		r.wake.Wait()
	}
	return l.take(), true
}

// resolve reaches for the file behind a mapping and settles its object. A helper is asked
// beside the queue.
func (r *resolver) resolve(j job, l *lane) {
	if r.settled(j.object) {
		r.end(j)
		return
	}
	found, about := reachHere(r.objects.ctx, j)
	if !found.mayAnswerAside() {
		r.objects.foretell(j, found)
		found.readContent(r.objects.ctx, r.objects.early, &r.objects.reading)
		found.judge(r.objects.keep == 0)
		r.accept(j, found)
		return
	}
	r.objects.noteSilent(j.object)
	r.workers.Go(func() {
		l.far <- struct{}{}
		defer func() { <-l.far }()
		r.accept(j, reachAside(j, about, r.objects.early))
	})
}

// end says that a job is over.
func (r *resolver) end(j job) {
	r.ended.Add(1)
	if j.done != nil {
		j.done()
	}
	if told := r.objects.reached; told != nil {
		told(j.object)
	}
}

// noteSilent gives the reason of a file that a helper is asked for, until it answers.
func (s *objects) noteSilent(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.id.IsZero() {
		o.why = reason.FileUnresponsive
	}
}

// accept takes what was found.
func (r *resolver) accept(j job, found reached) {
	defer r.end(j)
	r.objects.mu.Lock()
	if r.over {
		r.objects.mu.Unlock()
		found.close()
		return
	}
	j.object.tried++
	why := r.objects.settle(j, found)
	r.objects.mu.Unlock()
	if why != reason.None && j.again != nil && !j.content.OfMapping() {
		j.again()
	}
}

// settle gives the object of a job what was found of its file, if it is believed.
// The caller holds mu.
func (s *objects) settle(j job, f reached) reason.Reason {
	o := j.object
	if f.why == reason.None {
		f.why = s.judge(j, f)
	}
	if o.doubt(j, f); o.mixed {
		o.id, f.why = buildid.ID{}, reason.FileChanged
	}
	if f.why != reason.None {
		o.why = f.why
		f.close()
		return f.why
	}
	o.id, o.why = f.id, reason.None
	if j.content != nil && f.layered && f.name != "" {
		o.path = f.name // BPF tells the path in the layer
	}
	if f.fickle && j.content == nil && j.want.IsZero() {
		delete(s.files, o.key) // another mapping may be of another content
	}
	if o.content != nil {
		f.close()
		return reason.None
	}
	o.way, o.seen, o.exact, o.early = &j, f.seen, j.isExact(f), buildid.Content{}
	if o.exact {
		o.early = f.content
	}
	if f.byName && s.strict {
		o.unsure, f.judged, f.trusted = true, true, false
	}
	if f.judged {
		o.judged, o.trusted = true, f.trusted
		o.vouched.Store(f.trusted)
	}
	if s.open >= s.keep {
		f.close()
		return reason.None
	}
	o.content = f.file
	s.open++
	return reason.None
}

// foretell gives an object that is reported once its identity, before the content of its file is
// read: an event does not wait for the content as long as that may take.
func (s *objects) foretell(j job, f reached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := j.object
	if s.work.over || !o.alone || !o.id.IsZero() || f.why != reason.None || s.judge(j, f) != reason.None {
		return
	}
	if o.doubt(j, f); !o.mixed {
		o.id, o.why = f.id, reason.None
	}
}

// doubt notes when nothing tells which of two contents of a file a mapping shows: the file
// changed after it was mapped, or mappings of one inode were of different contents.
func (o *object) doubt(j job, f reached) {
	if j.content != nil {
		return // BPF tells contents apart
	}
	if !j.want.IsZero() && f.id != j.want && f.name != "" && f.name != strings.TrimSuffix(j.vma.Name, deleted) {
		return // another file altogether, which the process has at that address by now
	}
	o.layered = o.layered || j.want.IsZero() && f.layered
	another := f.file != nil && !o.id.IsZero() && (f.id != o.id || !f.content.IsZero() && !o.early.IsZero() && f.content != o.early)
	if f.seen.after(j.mapped) || f.young && j.want.IsZero() || another || j.want.IsZero() && f.why == reason.FileChanged {
		o.mixed = true
	}
}

// judge says whether what was found is the file that was mapped. The caller holds mu.
func (s *objects) judge(j job, f reached) reason.Reason {
	if f.why == reason.None && f.file != nil && f.seen.size == 0 {
		return reason.FileChanged // nobody executes an empty file: it was cut since
	}
	if j.content == nil {
		return s.judgeRecord(j, f)
	}
	known := j.object.id // from memory, or from another opening of the file
	if f.proven && !known.IsZero() && f.id != known {
		s.disagreed++
	}
	switch {
	case f.proven || f.id == known && j.isLookalike(f):
		return reason.None
	case known.IsZero() && j.content.OfMapping():
		return whyUnproven(j.content)
	}
	return reason.FileChanged
}

// judgeRecord is judge for what a record told of, or /proc. Where times tell nothing, the
// file is believed to be what was mapped only by an identity that the kernel read, or if it
// was read before there were samples. The caller holds mu.
func (s *objects) judgeRecord(j job, f reached) reason.Reason {
	switch {
	case !j.want.IsZero() && f.id != j.want:
		return reason.FileChanged
	case j.want.IsZero() && f.fickle && !s.unsampled:
		return reason.FileTimes
	}
	return reason.None
}

func (r *resolver) settled(o *object) bool {
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	if o.content == nil || o.layered {
		return false
	}
	o.tried++
	return true
}

// reached is what was found of a file, or why nothing was.
type reached struct {
	file            content
	id              buildid.ID
	seen            stamp // before the identity was read
	why             reason.Reason
	proven          bool            // it has the content that was mapped
	renamed         bool            // it is the file that was mapped, and only its names seem to have changed
	content         buildid.Content // zero if it was not read
	judged, trusted bool            // only root or this user can exchange it, if judged
	// layered tells that it is on an overlay.
	layered bool
	fickle  bool   // device, inode and times do not tell that it is what a record told of
	young   bool   // it may have changed after it was mapped and have a time from before
	byName  bool   // path and identity alone tell that it is the one that was mapped
	name    string // that the process has it under; "" when that is not known
	locked  bool   // the process lets nobody look at its mappings
}

func (f reached) close() {
	if f.file != nil {
		f.file.Close()
	}
}

// reach opens the file of a mapping and reads its identity, through the process
// that has it mapped, or by its path when that process is gone. A file without notes is
// hashed as long as ctx allows it. Where the file's file system may not answer, a helper does
// that, and reads the content of a file of at most so many bytes.
func reach(ctx context.Context, j job, early int64) reached {
	found, about := reachHere(ctx, j)
	if found.mayAnswerAside() {
		return reachAside(j, about, early)
	}
	return found
}

// mayAnswerAside reports whether a helper may have the file: its file system may not answer. Of a
// process that lets nobody look at its mappings a helper would have none either.
func (f *reached) mayAnswerAside() bool {
	return f.why == reason.FileUnresponsive && !f.locked && aside.Available()
}

// reachHere is reach without a helper. It names what a helper is to be asked about.
func reachHere(ctx context.Context, j job) (found reached, about string) {
	f, name, why, about, inTime := openMappedInTime(j)
	if !inTime {
		return reached{why: reason.FileUnresponsive, locked: true}, about
	}
	byName := j.content == nil && j.vma.Inode == 0
	if why == reason.None {
		// The process may have mapped another file there since.
		byName = byName && name != strings.TrimSuffix(j.vma.Name, deleted)
	}
	if why == reason.ProcessGone {
		f, why = openPath(j.vma)
	}
	if why != reason.None {
		return reached{why: why}, about
	}
	if j.content != nil {
		waitForClock(j.content)
	}
	leavePages(f)
	found = identifyOpen(ctx, f, j.claim)
	if found.why == reason.None {
		found.layered, found.fickle, found.name = isLayered(f), j.media.isFickle(f), name
		found.proven, found.renamed = j.proves(f, isContent), j.proves(f, isRenamed)
		found.byName = byName
		found.young = j.content == nil && found.seen.after(j.mapped.Add(-fstimes.Delay())) && !isProgram(j.pid, f)
	}
	return found, about
}

// identifyOpen reads the identity of an open file, or no more than what it claims. The file has
// that identity and the stamp that is returned at one time.
func identifyOpen(ctx context.Context, f *os.File, claim bool) reached {
	return whileUnchanged(f, func() reached { return identifyOnce(ctx, f, claim) })
}

// whileUnchanged reads a file that may change meanwhile, or only its names. Where times tell
// nothing they are no reason to doubt it either, unless all of its code was read.
func whileUnchanged(f *os.File, read func() reached) (found reached) {
	for range readAttempts {
		seen := stampOf(f)
		found = read()
		found.seen = seen
		if found.why != reason.None || stampOf(f) == seen || found.id.Kind() != buildid.ByContent && !keepsTimes(f) {
			return found
		}
	}
	return reached{file: f, seen: found.seen, why: reason.FileWritten}
}

// readAttempts is how often a file is read that changes meanwhile.
const readAttempts = 3

func identifyOnce(ctx context.Context, f *os.File, claim bool) reached {
	var info buildid.Info
	var err error
	if claim {
		info, err = buildid.ReadClaim(f)
	} else {
		info, err = contentcache.Read(ctx, f)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reached{file: f, why: reason.HashBudget}
	case errors.Is(err, buildid.ErrChanging):
		return reached{file: f, why: reason.FileWritten}
	case err != nil:
		return reached{file: f, why: reason.FileDamaged}
	case info.ID.IsZero():
		return reached{file: f, why: procmap.WhyNoID(info)}
	}
	return reached{file: f, id: info.ID}
}

// proves reports whether an open file that was read is the one that was mapped, as isContent or
// isRenamed says.
func (j job) proves(f *os.File, is func(*os.File, *bpf.Validity) bool) bool {
	return j.content != nil && is(f, j.content) && (j.content.Pinned == 0 || isProgram(j.pid, f))
}

// openMapped opens the file through the process, if what it has mapped there is
// still what the record told: the same inode, or, in a record that has a build ID
// in place of the inode, a file with that build ID, which judge compares. Names
// prove nothing: the process may have executed another file of the same name, and
// the same file may have another name by now, or for us.
func openMapped(j job) (f *os.File, name string, why reason.Reason, about string) {
	about = j.about()
	p, err := procmap.Open(int(j.pid))
	if err != nil {
		return nil, "", reason.ProcessGone, about
	}
	defer p.Close()
	v, ok, err := p.Find(j.vma.Start)
	if err != nil || !ok || !j.shows(v) {
		return nil, "", reason.ProcessGone, about
	}
	about = aboutDevice(v.Dev.Major, v.Dev.Minor)
	opened, why, err := p.OpenFile(v)
	if err != nil {
		return nil, "", reason.ProcessGone, about
	}
	if opened == nil {
		return nil, "", why, about
	}
	return opened.File, strings.TrimSuffix(v.Name, deleted), reason.None, about
}

// mappedTime is how long it may take to open a file through the process that has it mapped.
const mappedTime = time.Second

// openMappedInTime is openMapped for a process that may let nobody look at its mappings: the kernel holds
// their lock while a process waits for a file system of its own in mmap(2). The goroutine that looks is left behind.
func openMappedInTime(j job) (f *os.File, name string, why reason.Reason, about string, inTime bool) {
	type answer struct {
		file      *os.File
		name      string
		why       reason.Reason
		about     string
		isAwaited bool
	}
	var mu sync.Mutex
	a := answer{isAwaited: true}
	inTime = patience.Within(int(j.pid), mappedTime, func() {
		file, name, why, about := openMapped(j)
		mu.Lock()
		defer mu.Unlock()
		if !a.isAwaited && file != nil {
			file.Close()
			return
		}
		a.file, a.name, a.why, a.about = file, name, why, about
	})
	mu.Lock()
	defer mu.Unlock()
	a.isAwaited = false
	if !inTime {
		if a.file != nil { // it came at the last moment
			a.file.Close()
		}
		return nil, "", reason.FileUnresponsive, j.about(), false
	}
	return a.file, a.name, a.why, a.about, true
}

// about names the file system of the file, as far as the kernel told it.
func (j job) about() string {
	if j.content != nil {
		return aboutDevice(j.content.Dev.Major, j.content.Dev.Minor)
	}
	return aboutDevice(j.vma.Dev.Major, j.vma.Dev.Minor)
}

// shows reports whether v may be the mapping of j.
func (j job) shows(v procmap.VMA) bool {
	if j.content != nil || !j.want.IsZero() || j.byIdentity {
		return true // the file itself will tell
	}
	return v.Dev == j.vma.Dev && v.Inode == j.vma.Inode
}

// openPath opens the file by its path, as this process sees it, and takes it
// only when it is the very inode that was mapped. A record that has the build ID
// has no inode: then the identity decides, which judge compares. What is no
// regular file is not opened: a stranger's path may lead to a device here.
func openPath(v procmap.VMA) (*os.File, reason.Reason) {
	place, err := mounts.OpenHere(v.Name)
	if errors.Is(err, mounts.ErrForeign) {
		return nil, reason.FileUnresponsive
	}
	if err != nil {
		return nil, reason.FileGone
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return nil, reason.FileGone
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || v.Inode != 0 && !isInode(&st, v) {
		return nil, reason.FileChanged
	}
	f, err := regular.Reopen(place, v.Name)
	if err != nil {
		return nil, reason.NotPermitted
	}
	return f, reason.None
}

func isInode(st *unix.Stat_t, v procmap.VMA) bool {
	return st.Ino == v.Inode &&
		unix.Major(st.Dev) == v.Dev.Major && unix.Minor(st.Dev) == v.Dev.Minor
}
