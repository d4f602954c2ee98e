package capture

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/procmap"
	"hallmark/reason"
)

// resolver opens mapped files while their processes live, and reads their
// identities, beside the recording: opening a file may wait for a disk or a
// network, and a ring buffer does not.
type resolver struct {
	objects *objects
	wake    *sync.Cond // on mu
	mu      sync.Mutex
	queue   []job
	stopped bool
	workers sync.WaitGroup
	most    time.Duration // that stop waits
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
	// again is called when the file could not be reached, nil for no call.
	again func()
}

// resolverWorkers open files at a time; they mostly wait.
const resolverWorkers = 4

func newResolver(o *objects) *resolver {
	r := &resolver{objects: o, most: patience}
	r.wake = sync.NewCond(&r.mu)
	for range resolverWorkers {
		r.workers.Go(r.run)
	}
	return r
}

// ask queues a job.
func (r *resolver) ask(j job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, j)
	r.wake.Signal()
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
	waitFor(&r.workers, r.most)
	r.mu.Lock()
	r.queue = nil
	r.mu.Unlock()
	r.objects.mu.Lock()
	r.over = true
	r.objects.mu.Unlock()
}

func (r *resolver) run() {
	for {
		j, ok := r.next()
		if !ok {
			return
		}
		r.resolve(j)
		if told := r.objects.reached; told != nil {
			told(j.object)
		}
	}
}

func (r *resolver) next() (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 {
		if r.stopped {
			return job{}, false
		}
		r.wake.Wait()
	}
	j := r.queue[0]
	r.queue = r.queue[1:]
	return j, true
}

// resolve reaches for the file behind a mapping and settles its object.
func (r *resolver) resolve(j job) {
	if r.settled(j.object) {
		return
	}
	found := reach(j)
	r.objects.mu.Lock()
	if r.over {
		r.objects.mu.Unlock()
		found.close()
		return
	}
	j.object.tried++
	why := r.objects.settle(j, found)
	r.objects.mu.Unlock()
	if why != reason.None && j.again != nil {
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
	if o.content != nil {
		f.close()
		return reason.None
	}
	o.way, o.seen = &j, f.seen
	if s.open >= s.keep {
		f.close()
		return reason.None
	}
	o.content = f.file
	s.open++
	return reason.None
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
	another := f.file != nil && !o.id.IsZero() && f.id != o.id
	if f.seen.after(j.mapped) || another || j.want.IsZero() && f.why == reason.FileChanged {
		o.mixed = true
	}
}

// judge says whether what was found is the file that was mapped. The caller holds mu.
func (s *objects) judge(j job, f reached) reason.Reason {
	if j.content == nil {
		if !j.want.IsZero() && f.id != j.want {
			return reason.FileChanged
		}
		return reason.None
	}
	known := j.object.id // from memory, or from another opening of the file
	if f.proven && !known.IsZero() && f.id != known {
		s.disagreed++
	}
	if !f.proven && f.id != known {
		return reason.FileChanged
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
	file   *os.File
	id     buildid.ID
	seen   stamp // before the identity was read
	why    reason.Reason
	proven bool // it has the content that was mapped
	// layered tells that it is on an overlay.
	layered bool
	name    string // that the process has it under; "" when that is not known
}

func (f reached) close() {
	if f.file != nil {
		f.file.Close()
	}
}

// reach opens the file of a mapping and reads its identity, through the process
// that has it mapped, or by its path when that process is gone.
func reach(j job) reached {
	f, name, why := openMapped(j)
	if why == reason.ProcessGone {
		f, why = openPath(j.vma)
	}
	if why != reason.None {
		return reached{why: why}
	}
	if j.content != nil {
		waitForTick(j.content)
	}
	seen := stampOf(f)
	info, err := buildid.Read(f)
	if err != nil {
		return reached{file: f, why: reason.FileDamaged}
	}
	return reached{file: f, id: info.ID, seen: seen, layered: isLayered(f), proven: j.proves(f), name: name}
}

// proves reports whether an open file that was read has the content that was mapped.
func (j job) proves(f *os.File) bool {
	return j.content != nil && isContent(f, j.content) && (j.content.Pinned == 0 || isProgram(j.pid, f))
}

// openMapped opens the file through the process, if what it has mapped there is
// still what the record told: the same inode, or, in a record that has a build ID
// in place of the inode, a file with that build ID, which judge compares. Names
// prove nothing: the process may have executed another file of the same name, and
// the same file may have another name by now, or for us.
func openMapped(j job) (*os.File, string, reason.Reason) {
	p, err := procmap.Open(int(j.pid))
	if err != nil {
		return nil, "", reason.ProcessGone
	}
	defer p.Close()
	v, ok, err := p.Find(j.vma.Start)
	if err != nil || !ok || !j.shows(v) {
		return nil, "", reason.ProcessGone
	}
	f, why, err := p.OpenFile(v)
	if err != nil {
		return nil, "", reason.ProcessGone
	}
	if f == nil {
		return nil, "", why
	}
	return f.File, strings.TrimSuffix(v.Name, deleted), reason.None
}

// shows reports whether v may be the mapping of j.
func (j job) shows(v procmap.VMA) bool {
	if j.content != nil || !j.want.IsZero() {
		return true // the file itself will tell
	}
	return v.Dev == j.vma.Dev && v.Inode == j.vma.Inode
}

// openPath opens the file by its path, as this process sees it, and takes it
// only when it is the very inode that was mapped. A record that has the build ID
// has no inode: then the identity decides, which judge compares. What is no
// regular file is not opened: a stranger's path may lead to a device here.
func openPath(v procmap.VMA) (*os.File, reason.Reason) {
	place, err := unix.Open(v.Name, unix.O_PATH|unix.O_CLOEXEC, 0)
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
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", place))
	if err != nil {
		return nil, reason.NotPermitted
	}
	return f, reason.None
}

func isInode(st *unix.Stat_t, v procmap.VMA) bool {
	return st.Ino == v.Inode &&
		unix.Major(st.Dev) == v.Dev.Major && unix.Minor(st.Dev) == v.Dev.Minor
}
