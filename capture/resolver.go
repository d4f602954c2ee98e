package capture

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
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
}

// job is a mapping of process pid through which an object may be reached.
type job struct {
	object *object
	want   buildid.ID // what the kernel read from the mapped pages, zero if it read none
	vma    procmap.VMA
	pid    uint32
}

// resolverWorkers open files at a time; they mostly wait.
const resolverWorkers = 4

func newResolver(o *objects) *resolver {
	r := &resolver{objects: o}
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

// stop returns when every job that was asked for is done.
func (r *resolver) stop() {
	r.mu.Lock()
	r.stopped = true
	r.wake.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}

func (r *resolver) run() {
	for {
		j, ok := r.next()
		if !ok {
			return
		}
		r.resolve(j)
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
	f, id, why := reach(j)
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	o := j.object
	if why != reason.None {
		o.why = why
		return
	}
	if o.content != nil || r.objects.open >= r.objects.keep {
		f.Close()
	} else {
		o.content = f
		r.objects.open++
	}
	o.id, o.why = id, reason.None
}

func (r *resolver) settled(o *object) bool {
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	return o.content != nil
}

// reach opens the file of a mapping and reads its identity, through the process
// that has it mapped, or by its path when that process is gone.
func reach(j job) (*os.File, buildid.ID, reason.Reason) {
	f, why := openMapped(j)
	if why == reason.ProcessGone {
		f, why = openPath(j.vma)
	}
	if why != reason.None {
		return nil, buildid.ID{}, why
	}
	info, err := buildid.Read(f)
	switch {
	case err != nil:
		why = reason.FileDamaged
	case !j.want.IsZero() && info.ID != j.want:
		why = reason.FileChanged
	default:
		return f, info.ID, reason.None
	}
	f.Close()
	return nil, buildid.ID{}, why
}

// openMapped opens the file through the process, if what it has mapped there is
// still what the record told: the same inode, or, in a record that has a build ID
// in place of the inode, a file with that build ID, which reach compares. Names
// prove nothing: the process may have executed another file of the same name, and
// the same file may have another name by now, or for us.
func openMapped(j job) (*os.File, reason.Reason) {
	p, err := procmap.Open(int(j.pid))
	if err != nil {
		return nil, reason.ProcessGone
	}
	defer p.Close()
	v, ok, err := p.Find(j.vma.Start)
	if err != nil || !ok {
		return nil, reason.ProcessGone
	}
	if j.want.IsZero() && (v.Dev != j.vma.Dev || v.Inode != j.vma.Inode) {
		return nil, reason.ProcessGone
	}
	f, why, err := p.OpenFile(v)
	if err != nil {
		return nil, reason.ProcessGone
	}
	if f == nil {
		return nil, why
	}
	return f.File, reason.None
}

// openPath opens the file by its path, as this process sees it, and takes it
// only when it is the very inode that was mapped. A record that has the build ID
// has no inode: then the identity decides, which reach compares. What is no
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
