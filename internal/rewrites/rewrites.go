// Package rewrites finds the pages of files that processes rewrite in their memory while somebody
// records them: see procmap.Process.Rewritten. Code there is not the file's.
//
// A worker looks beside the recording, when a process is first sampled, later again while it is
// sampled, and at the end if it is still there. Nobody knows when a page was rewritten. So all
// samples of the process in such a page count as rewritten, also those from before the look.
//
// A process may do much to hinder a look. So a list of the pages that are its own comes first, which
// takes little; a page that cannot be compared with the file in time counts as rewritten; and the
// profile names a process for which not even the list could be had.
//
// Pages of memory of no file that were copies of a file's when they were first met are compared in
// the same looks: see [Origins]. One that is no copy any more, or is gone, counts as rewritten.
package rewrites

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hallmark/addr"
	"hallmark/internal/aside"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/plaintext"
	"hallmark/internal/procfs"
	"hallmark/procmap"
	"hallmark/profile"
)

// Watcher looks at the processes of one recording. Of its methods only [Watcher.See] and
// [Watcher.Original] may be called while others are under way.
type Watcher struct {
	objects *objects.Set
	looks   *patience.Shares // that samples wait for

	mu     sync.Mutex
	sights map[int]*Sight // by the process
	queue  []int
	works  bool // a worker takes from queue
	over   bool
	worker sync.WaitGroup
	// release lets the helper go that compares pages.
	release func()
	pages   int            // ranges that are kept
	pagesOf map[uint32]int // of them those of a user's processes
	missed  int            // samples of processes for which there was no room in sights
	copiers int            // sights with copies
}

// Sight is what looks found at the processes that had a number.
type Sight struct {
	name   string        // in the last sample
	last   uint64        // when it was looked at, or was to be (ns, CLOCK_MONOTONIC)
	next   uint64        // when it is looked at again
	after  time.Duration // how long after that once more
	queued bool
	user   uint32
	gone   bool  // at the last look
	looked bool  // a look succeeded
	err    error // of the last look, nil if it succeeded or the process was gone
	found  map[rewrittenPages]bool
	many   bool    // there are more: every file of the process counts as rewritten
	copies *copies // of the program that runs; nil for none
	// nextCopies is when the copies alone are looked at, unless all is before, and onlyCopies that the
	// look that waits is of that kind.
	nextCopies uint64
	onlyCopies bool
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
	// maxRewrites the ranges of pages of all of them, and maxOfProcess those of one.
	maxSights    = 1 << 16
	maxLooks     = 1 << 10
	maxRewrites  = 1 << 14
	maxOfProcess = 1 << 11
	// firstAgain is how soon a process is looked at again; each further time it is twice as long.
	// leastAgain is how soon it is that has another name, which it may give itself all the time.
	firstAgain = time.Second
	leastAgain = 100 * time.Millisecond
	// copiesAgain is how soon the copies of a program are compared again, which take no list of pages.
	// It is longer where that would take more than the copiesShare-th part of the time.
	copiesAgain = 500 * time.Millisecond
	copiesShare = 20
	// lastLooks is how long the looks at the end take together.
	lastLooks = time.Second
	// rewritesTime is how long a look may take: pages of a process's own are compared by a helper,
	// which a busy machine takes some tenths of a second to start.
	rewritesTime = 2 * time.Second
)

// New returns a watcher of the processes whose objects are in o. A look that samples wait for takes
// of the shares looks. [Watcher.Close] or [Watcher.LookAgain] ends it.
func New(o *objects.Set, looks *patience.Shares) *Watcher {
	return &Watcher{objects: o, looks: looks, sights: map[int]*Sight{}, pagesOf: map[uint32]int{}, release: aside.Hold()}
}

// See takes note of a process that was sampled at a time (ns, CLOCK_MONOTONIC; 0 for now). The worker
// looks at it when it is first met, when it has another name, for it may run another program, and
// later again. see waits for nothing.
func (r *Watcher) See(pid int, name string, now uint64) {
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
		now = perfring.Monotonic()
	}
	if s.name != name {
		s.name, s.after, s.next = name, firstAgain, min(s.next, s.last+uint64(leastAgain))
	}
	switch {
	case now >= s.next:
		s.onlyCopies, s.last, s.next, s.after = false, now, now+uint64(s.after), 2*s.after
	case s.copies != nil && now >= s.nextCopies:
		s.onlyCopies = true
	default:
		return
	}
	s.queued = true
	r.queue = append(r.queue, pid)
	if !r.works {
		r.works = true
		r.worker.Go(r.work)
	}
}

// of returns what is known of a process, nil if there is no room. The caller holds mu.
func (r *Watcher) of(pid int) *Sight {
	s := r.sights[pid]
	if s == nil && len(r.sights) >= maxSights {
		r.missed++
		return nil
	}
	if s == nil {
		s = &Sight{after: firstAgain, user: procfs.AccountOf(uint32(pid))}
		r.sights[pid] = s
	}
	return s
}

// work looks at the processes that wait for it.
func (r *Watcher) work() {
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
		r.look(pid, rewritesTime)
	}
}

// look looks at a process, for at most that long, and adds what it found to what is known.
func (r *Watcher) look(pid int, limit time.Duration) {
	r.mu.Lock()
	s := r.sights[pid]
	copies, onlyCopies := s.copies, s.onlyCopies && s.copies != nil
	r.mu.Unlock()
	began := time.Now()
	found, err := rewrittenIn(pid, limit, lookFor{copies, onlyCopies})
	r.mu.Lock()
	defer r.mu.Unlock()
	s.queued, s.onlyCopies = false, false
	s.nextCopies = perfring.Monotonic() + uint64(max(copiesAgain, copiesShare*time.Since(began)))
	if copies != nil && copies.over.Load() && s.copies == copies {
		r.leave(s)
	}
	if !onlyCopies {
		s.gone = errors.Is(err, procmap.ErrNoProcess)
		switch {
		case err == nil, errors.Is(err, procmap.ErrNoMemory): // a kernel thread, or it has just ended
			s.looked, s.err = true, nil
		case s.gone: // why nobody could look at it stays
		default:
			s.err = err
		}
	}
	for _, pages := range found {
		r.keep(s, pages)
	}
}

// follow has the looks at a process compare a page of its program with the file that it was copied
// from. It takes the program over, and returns the copies that the page is among, nil if there is no
// room for them.
func (r *Watcher) follow(pid int, program *procmap.Process, page addr.Abs, from copiedPage) *copies {
	r.mu.Lock()
	s := r.of(pid)
	var c *copies
	if s != nil {
		c = s.copies
	}
	r.mu.Unlock()
	if c != nil {
		switch err := c.alive(); {
		case err == nil:
			program.Close()
			c.add(page, from)
			return c
		case !errors.Is(err, os.ErrProcessDone): // it may go on, with pages to look at
			program.Close()
			return nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != nil {
		r.leave(s)
	}
	if s == nil || r.over || r.copiers == maxCopiers {
		program.Close()
		return nil
	}
	s.copies = &copies{program: program, pages: map[addr.Abs]copiedPage{page: from}}
	r.copiers++
	return s.copies
}

// leave ends the looks at the copies of a process. The caller holds mu.
func (r *Watcher) leave(s *Sight) {
	if s.copies != nil {
		s.copies.ended()
		s.copies = nil
		r.copiers--
	}
}

// isShareUsed reports whether as many ranges are kept of a user's processes as may be of one who is
// neither root nor this user, or of all such users. The caller holds mu.
func (r *Watcher) isShareUsed(user uint32) bool {
	if user == 0 || user == uint32(os.Geteuid()) {
		return false
	}
	others := r.pages - r.pagesOf[0]
	if own := uint32(os.Geteuid()); own != 0 {
		others -= r.pagesOf[own]
	}
	return r.pagesOf[user] >= maxRewrites/4 || others >= maxRewrites/4*3
}

// keep keeps pages that a process has rewritten. The caller holds mu.
func (r *Watcher) keep(s *Sight, pages rewrittenPages) {
	switch {
	case s.many || s.found[pages]:
		return
	case len(s.found) == maxOfProcess, r.pages == maxRewrites, r.isShareUsed(s.user):
		s.many = true
		return
	case s.found == nil:
		s.found = map[rewrittenPages]bool{}
	}
	s.found[pages] = true
	r.pages++
	r.pagesOf[s.user]++
}

// LookAgain ends the work, and looks once more at the processes that are still there: first at
// those that have copies, then at those that nobody has looked at yet.
func (r *Watcher) LookAgain() {
	r.stop()
	defer r.release()
	until := time.Now().Add(lastLooks)
	var copiers, early, late []int
	for pid, s := range r.sights {
		switch {
		case s.gone:
		case s.copies != nil:
			copiers = append(copiers, pid)
		case s.looked:
			late = append(late, pid)
		default:
			early = append(early, pid)
		}
	}
	for _, pid := range slices.Concat(copiers, early, late) {
		r.sights[pid].onlyCopies = false
		if left := time.Until(until); left > 0 {
			r.look(pid, left)
		} else {
			r.sights[pid].err = errTooMany
		}
	}
	r.leaveAll()
}

// leaveAll ends the looks at all copies.
func (r *Watcher) leaveAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sights {
		r.leave(s)
	}
}

// errTooMany is why nobody looked at a process at the end.
var errTooMany = errors.New("too many processes ran")

// Close ends everything.
func (r *Watcher) Close() {
	r.stop()
	r.leaveAll()
	r.release()
}

// stop ends the work.
func (r *Watcher) stop() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.worker.Wait()
}

// isOf reports whether the pages are of the file. Mapped files and those that BPF reports have
// different numbers on file systems without a disk of their own: there the inode or the name
// decides.
func (w *rewrittenPages) isOf(o *objects.Object) bool {
	inode, dev := o.Key.Inode, procmap.Dev{Major: o.Key.Major, Minor: o.Key.Minor}
	if inode == 0 {
		inode, dev = o.Key.Content.Inode, procmap.Dev(o.Key.Content.Dev)
	}
	virtual := w.dev.Major == 0 || inode != 0 && dev.Major == 0
	return w.path == o.Path || inode != 0 && w.inode == inode && (virtual || w.dev == dev) ||
		virtual && filepath.Base(w.path) == filepath.Base(o.Path)
}

// Span is a range of offsets in a file: Start <= at < End.
type Span struct{ Start, End addr.Offset }

// join sorts spans by their starts and joins those that touch.
func join(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	var joined []Span
	for _, next := range spans {
		if last := len(joined) - 1; last >= 0 && next.Start <= joined[last].End {
			joined[last].End = max(joined[last].End, next.End)
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

// Rewritten returns what was found at the processes of a number, nil if they are not known to have
// rewritten anything. It is for the time after [Watcher.LookAgain].
func (r *Watcher) Rewritten(pid int) *Sight {
	if s := r.sights[pid]; s != nil && (s.many || len(s.found) > 0) {
		return s
	}
	return nil
}

// Holds reports whether an offset is in one of spans, as In returns them.
func Holds(spans []Span, at addr.Offset) bool {
	i, found := slices.BinarySearchFunc(spans, at, func(s Span, at addr.Offset) int { return cmp.Compare(s.Start, at) })
	return found || i > 0 && at < spans[i-1].End
}

// In returns the spans of a file that a process has rewritten, and may have: those that are of any.
func (s *Sight) In(o *objects.Object, ofAny []Span) []Span {
	if s.many {
		return []Span{{0, math.MaxUint64}}
	}
	spans := slices.Clone(ofAny)
	for w := range s.found {
		if w.isOf(o) {
			spans = append(spans, Span{w.start, w.end})
		}
	}
	return join(spans)
}

// OfAny returns the spans that may be of any file of the process, of those in its stacks: their file
// system numbers files in its own way, and the file has another name in the stacks.
func (s *Sight) OfAny(files map[*objects.Object]bool) (spans []Span) {
	for w := range s.found {
		isOne := w.dev.Major != 0 || w.inode == 0 // the vdso
		for o := range files {
			isOne = isOne || w.isOf(o)
		}
		if !isOne {
			spans = append(spans, Span{w.start, w.end})
		}
	}
	return spans
}

// Notes returns what a profile says of rewritten pages.
func (r *Watcher) Notes() []string {
	var notes []string
	for pid, s := range r.sights {
		notes = append(notes, s.notes(pid)...)
	}
	slices.Sort(notes)
	if more := len(notes) - mostRewritten; more > 0 {
		notes = append(notes[:mostRewritten], fmt.Sprintf("rewritten in memory: pages of %s", plaintext.Plural(int64(more), "more file")))
	}
	return append(notes, r.unknown()...)
}

// mostRewritten is how many files a profile names of which a process has rewritten pages.
const mostRewritten = 20

// notes returns what a profile says of the rewritten pages of one process.
func (s *Sight) notes(pid int) (notes []string) {
	type file struct{ process, path string }
	spans := map[file][]Span{}
	for w := range s.found {
		f := file{w.process, w.path}
		spans[f] = append(spans[f], Span{w.start, w.end})
	}
	for f, list := range spans {
		pages := 0
		for _, part := range join(list) {
			pages += int(part.End-part.Start) / os.Getpagesize()
		}
		notes = append(notes, profile.RewrittenNote(f.process, pid, pages, f.path))
	}
	if s.many {
		notes = append(notes, profile.AllRewrittenNote(s.name, pid))
	}
	return notes
}

// unknown returns what a profile says of the processes for which nobody could look.
func (r *Watcher) unknown() (notes []string) {
	processes := map[string][]profile.Labels{} // by the reason
	for pid, s := range r.sights {
		if s.err != nil {
			why := withoutProcess(s.err).Error()
			processes[why] = append(processes[why], profile.Labels{Process: s.name, PID: pid})
		}
	}
	for _, why := range slices.Sorted(maps.Keys(processes)) {
		notes = append(notes, profile.NotLookedNote(processes[why], why))
	}
	if r.missed > 0 {
		notes = append(notes, fmt.Sprintf("rewritten in memory: not known of %s: %v", plaintext.Plural(int64(r.missed), "sample"), errTooMany))
	}
	return notes
}

// withoutProcess returns the cause of an error, which names no process.
func withoutProcess(err error) error {
	if of := new(procmap.Error); errors.As(err, &of) {
		err = of.Err
	}
	if path := new(os.PathError); errors.As(err, &path) {
		err = path.Err
	}
	return err
}
