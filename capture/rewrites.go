package capture

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hallmark/addr"
	"hallmark/internal/aside"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
)

// rewrites looks at the processes that are sampled for pages of files that they have rewritten
// in their memory: see procmap.Process.Rewritten. Code there is not the file's.
//
// A worker looks beside the recording, when a process is first sampled, later again while it is
// sampled, and at the end if it is still there. Nobody knows when a page was rewritten. So all
// samples of the process in such a page count as rewritten, also those from before the look.
type rewrites struct {
	mu     sync.Mutex
	sights map[int]*lookedAt // by the process
	queue  []int
	works  bool // a worker takes from queue
	over   bool
	worker sync.WaitGroup
	// release lets the helper go that compares pages.
	release func()
	pages   int // ranges that are kept
	missed  int // samples and processes for which nobody looked
}

// lookedAt is what is known of the processes that had a number.
type lookedAt struct {
	name   string        // in the last sample
	next   uint64        // when it is looked at again (ns, CLOCK_MONOTONIC)
	after  time.Duration // how long after that once more
	queued bool
	gone   bool // at the last look
	found  []rewrittenPages
}

// rewrittenPages are pages of a file that a process has rewritten.
type rewrittenPages struct {
	process    string // its name
	path       string
	dev        procmap.Dev
	inode      uint64
	start, end addr.Offset // in the file
}

const (
	// maxSights bounds the processes that are remembered, maxLooks those that wait for a look,
	// and maxRewrites the ranges of pages of all of them.
	maxSights   = 1 << 16
	maxLooks    = 1 << 10
	maxRewrites = 1 << 14
	// firstAgain is how soon a process is looked at again; each further time it is twice as long.
	firstAgain = time.Second
	// lastLooks is how long the looks at the end take together, but for the last one of them.
	lastLooks = time.Second
	// rewritesTime is how long a look may take: pages of a process's own are compared by a helper,
	// which a busy machine takes some tenths of a second to start.
	rewritesTime = 2 * time.Second
)

func newRewrites() *rewrites {
	return &rewrites{sights: map[int]*lookedAt{}, release: aside.Hold()}
}

// see takes note of a process that was sampled at a time (ns, CLOCK_MONOTONIC; 0 for now). The worker
// looks at it when it is first met, when it has another name, for it may run another program, and
// later again. see waits for nothing.
func (r *rewrites) see(pid int, name string, now uint64) {
	if pid <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(pid)
	if s == nil || s.queued || r.over || len(r.queue) >= maxLooks {
		return
	}
	if now == 0 { // the backend bpf keeps times for timelines only
		now = monotonic()
	}
	if s.name != name {
		s.name, s.after = name, firstAgain
	} else if now < s.next {
		return
	}
	s.queued, s.next, s.after = true, now+uint64(s.after), 2*s.after
	r.queue = append(r.queue, pid)
	if !r.works {
		r.works = true
		r.worker.Go(r.work)
	}
}

// of returns what is known of a process, nil if there is no room. The caller holds mu.
func (r *rewrites) of(pid int) *lookedAt {
	s := r.sights[pid]
	if s == nil && len(r.sights) >= maxSights {
		r.missed++
		return nil
	}
	if s == nil {
		s = &lookedAt{after: firstAgain}
		r.sights[pid] = s
	}
	return s
}

// work looks at the processes that wait for it.
func (r *rewrites) work() {
	for {
		r.mu.Lock()
		if r.over || len(r.queue) == 0 {
			r.works = false
			r.mu.Unlock()
			return
		}
		pid := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		r.look(pid)
	}
}

// look looks at a process, and adds what it found to what is known.
func (r *rewrites) look(pid int) {
	found, err := inTime(pid, rewritesTime, func() ([]rewrittenPages, error) { return rewrittenIn(pid) })
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sights[pid]
	s.queued, s.gone = false, errors.Is(err, procmap.ErrNoProcess) || errors.Is(err, os.ErrProcessDone)
	for _, pages := range found {
		if r.pages < maxRewrites && !slices.Contains(s.found, pages) {
			s.found = append(s.found, pages)
			r.pages++
		}
	}
}

// rewrittenIn returns the pages that a process has rewritten in executable mappings of files.
func rewrittenIn(pid int) ([]rewrittenPages, error) {
	maps, err := procmap.Open(pid)
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	vmas, err := maps.Executable()
	if err != nil {
		return nil, err
	}
	return rewrittenOf(maps, vmas)
}

func rewrittenOf(maps *procmap.Process, vmas []procmap.VMA) ([]rewrittenPages, error) {
	var all []rewrittenPages
	for _, v := range vmas {
		if isMemory(v) {
			continue
		}
		found, err := maps.Rewritten(v)
		if err != nil {
			return all, err
		}
		for _, pages := range found {
			all = append(all, rewrittenPages{
				process: processName(uint32(maps.PID())),
				path:    v.Path(), dev: v.Dev, inode: v.Inode,
				start: v.FileOffset(pages.Start), end: v.FileOffset(pages.End),
			})
		}
	}
	return all, nil
}

// lookAgain ends the work, and looks once more at the processes that are still there.
func (r *rewrites) lookAgain() {
	r.stop()
	until := time.Now().Add(lastLooks)
	defer r.release()
	for pid, s := range r.sights {
		switch {
		case s.gone:
		case time.Now().After(until):
			r.missed++
		default:
			r.look(pid)
		}
	}
}

// close ends everything.
func (r *rewrites) close() {
	r.stop()
	r.release()
}

// stop ends the work.
func (r *rewrites) stop() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.worker.Wait()
}

// holds reports whether a frame of the file is in these pages. Mapped files and those that BPF
// reports have different numbers on file systems without a disk of their own: there the name
// decides.
func (w *rewrittenPages) holds(p place) bool {
	o := p.object
	if at := addr.Offset(p.at); !o.isFile() || at < w.start || at >= w.end {
		return false
	}
	inode := cmp.Or(o.key.inode, o.key.content.Inode)
	return w.inode == inode || w.path == o.path || w.dev.Major == 0 && filepath.Base(w.path) == filepath.Base(o.path)
}

// hold reports whether a frame of a process is in a page that it has rewritten.
func (s *lookedAt) hold(p place) bool {
	return slices.ContainsFunc(s.found, func(w rewrittenPages) bool { return w.holds(p) })
}

// notes returns what a profile says of rewritten pages.
func (r *rewrites) notes() []string {
	type file struct {
		pid           int
		process, path string
	}
	pages := map[file]int{}
	for pid, s := range r.sights {
		for _, w := range s.found {
			pages[file{pid, w.process, w.path}] += int(w.end-w.start) / os.Getpagesize()
		}
	}
	var notes []string
	for f, n := range pages {
		notes = append(notes, profile.RewrittenNote(f.process, f.pid, n, f.path))
	}
	slices.Sort(notes)
	if more := len(notes) - mostRewritten; more > 0 {
		notes = append(notes[:mostRewritten], fmt.Sprintf("rewritten in memory: pages of %d files more", more))
	}
	if r.missed > 0 {
		notes = append(notes, fmt.Sprintf("rewritten in memory: nobody knows it of %d samples or processes, because too many ran", r.missed))
	}
	return notes
}

// mostRewritten is how many files a profile names of which a process has rewritten pages.
const mostRewritten = 20

// separate gives the frames in rewritten pages a reason in place of the identity of their file.
func (f *finisher) separate(r *rewrites) {
	s := f.stacks
	affected := map[uint32]*lookedAt{} // by the owner
	for i, l := range s.labels {
		if seen := r.sights[l.PID]; seen != nil && len(seen.found) > 0 {
			affected[uint32(i)] = seen
		}
	}
	if len(affected) == 0 {
		return
	}
	counts, order, times := s.counts, s.order, f.times
	s.counts, s.order, f.times = map[counted]total{}, nil, map[counted][]int64{}
	for _, key := range order {
		moved := key
		if seen := affected[key.owner]; seen != nil {
			moved.stack = f.rewritten(seen, key.stack)
		}
		s.sum(moved, counts[key])
		f.times[moved] = append(f.times[moved], times[key]...)
	}
}

// rewritten returns the stack of a process whose frames in rewritten pages have the reason.
func (f *finisher) rewritten(seen *lookedAt, stack uint32) uint32 {
	var places []place
	changed := false
	for p := range f.stacks.places(stack, f.objects.list) {
		if seen.hold(p) {
			p.object, changed = f.objects.rewritten(p.object), true
		}
		places = append(places, p)
	}
	if !changed {
		return stack
	}
	return f.stacks.intern(places, f.stacks.walk(stack))
}

// rewritten returns the object of the frames in pages of a file that processes have rewritten.
func (s *objects) rewritten(o *object) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.rewritten == nil {
		o.rewritten = s.add(&object{path: o.path, why: reason.Rewritten})
	}
	return o.rewritten
}
