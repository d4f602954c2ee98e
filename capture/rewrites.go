package capture

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
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/procmap"
	"hallmark/profile"
)

// rewrites looks at the processes that are sampled for pages of files that they have rewritten
// in their memory: see procmap.Process.Rewritten. Code there is not the file's.
//
// A worker looks beside the recording, when a process is first sampled, later again while it is
// sampled, and at the end if it is still there. Nobody knows when a page was rewritten. So all
// samples of the process in such a page count as rewritten, also those from before the look.
//
// A process may do much to hinder a look. So a list of the pages that are its own comes first, which
// takes little; what cannot be compared with the file in time counts as rewritten; and a process
// for which not even the list could be had is named in the profile.
//
// Pages of memory of no file that were copies of a file's when they were first met are compared in
// the same looks: see copies. One that is no copy any more, or is gone, counts as rewritten.
type rewrites struct {
	objects *objects.Set
	looks   *patience.Shares // that samples wait for

	mu     sync.Mutex
	sights map[int]*lookedAt // by the process
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

// lookedAt is what is known of the processes that had a number.
type lookedAt struct {
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

func newRewrites(o *objects.Set, looks *patience.Shares) *rewrites {
	return &rewrites{objects: o, looks: looks, sights: map[int]*lookedAt{}, pagesOf: map[uint32]int{}, release: aside.Hold()}
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
func (r *rewrites) of(pid int) *lookedAt {
	s := r.sights[pid]
	if s == nil && len(r.sights) >= maxSights {
		r.missed++
		return nil
	}
	if s == nil {
		s = &lookedAt{after: firstAgain, user: procfs.AccountOf(uint32(pid))}
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
		r.look(pid, rewritesTime)
	}
}

// look looks at a process, for at most that long, and adds what it found to what is known.
func (r *rewrites) look(pid int, limit time.Duration) {
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
func (r *rewrites) follow(pid int, program *procmap.Process, page addr.Abs, from copiedPage) *copies {
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
func (r *rewrites) leave(s *lookedAt) {
	if s.copies != nil {
		s.copies.ended()
		s.copies = nil
		r.copiers--
	}
}

// isShareUsed reports whether as many ranges are kept of a user's processes as may be of one who is
// neither root nor this user, or of all such users. The caller holds mu.
func (r *rewrites) isShareUsed(user uint32) bool {
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
func (r *rewrites) keep(s *lookedAt, pages rewrittenPages) {
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

// rewrittenIn returns the pages that a process has rewritten in executable mappings of files, also
// those of its next program if it executes one meanwhile, and the copies that are none now.
func rewrittenIn(pid int, limit time.Duration, what lookFor) (pages []rewrittenPages, err error) {
	until := time.Now().Add(limit)
	for range looks {
		var found []rewrittenPages
		found, err = rewrittenNow(pid, max(0, time.Until(until)), what)
		pages = append(pages, found...) // of the program before, too: samples are in it
		if errors.Is(err, procmap.ErrNoProcess) || !errors.Is(err, os.ErrProcessDone) {
			return pages, err
		}
	}
	return pages, errExecutes
}

// looks is how often a process is looked at that changes meanwhile.
const looks = 3

// Why nobody could look at a process.
var (
	errExecutes = errors.New("it executed other programs while it was looked at")
	errMaps     = errors.New("its mappings changed while they were looked at")
)

// rewrittenNow is rewrittenIn for the program that runs. It has the pages as well if the time suffices
// for a list of the process's own and not for comparing them.
func rewrittenNow(pid int, limit time.Duration, what lookFor) ([]rewrittenPages, error) {
	l := pagesLook{lookFor: what}
	inTime := patience.Within(pid, limit, func() { l.look(pid, time.Now().Add(limit/2)) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !inTime && !l.listed {
		return nil, patience.ErrSilent
	}
	var all []rewrittenPages
	for _, own := range l.own {
		for _, pages := range own.Pages {
			v := own.VMA
			all = append(all, rewrittenPages{
				process: l.process, path: cmp.Or(v.Path(), v.Name), dev: v.Dev, inode: v.Inode,
				start: v.FileOffset(pages.Start), end: v.FileOffset(pages.End),
			})
		}
	}
	for _, c := range l.unlike {
		all = append(all, rewrittenPages{
			process: l.process, path: c.path, dev: c.dev, inode: c.inode, start: c.offset, end: c.offset + c.size,
		})
	}
	return all, l.err
}

// lookFor is what a look is for.
type lookFor struct {
	copies     *copies // nil for none
	onlyCopies bool    // not for pages of files
}

// pagesLook is a look at the pages of a process, which others may find unfinished.
type pagesLook struct {
	lookFor

	mu      sync.Mutex
	process string // its name
	own     []procmap.OwnPages
	unlike  []copiedSpan // of copies
	listed  bool         // own is whole
	err     error
}

// look lists the pages, and compares them with the files until that time.
func (l *pagesLook) look(pid int, until time.Time) {
	var process *procmap.Process
	var own []procmap.OwnPages
	var err error
	if !l.onlyCopies {
		process, err = openThread(pid)
	}
	if err == nil && !l.onlyCopies {
		defer process.Close()
		own, err = ownPages(process)
	}
	l.mu.Lock()
	l.own, l.err, l.listed = own, err, true
	l.process = procfs.NameOf(uint32(pid))
	if l.copies != nil {
		l.unlike = l.copies.unknown()
	}
	l.mu.Unlock()
	l.lookAtCopies()
	for i, o := range own {
		if time.Now().After(until) {
			return
		}
		// One that could not be looked at stays as it is.
		if pages, err := process.Unlike(o); err == nil {
			l.mu.Lock()
			l.own[i].Pages = pages
			l.mu.Unlock()
		}
	}
}

// lookAtCopies compares the copies with the files. It takes no more time than their number, which is
// bounded.
func (l *pagesLook) lookAtCopies() {
	if l.copies == nil {
		return
	}
	unlike, err := l.copies.spans()
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, os.ErrClosed) {
		return // they stay as they are
	}
	if err != nil {
		l.copies.over.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlike = unlike
}

// openThread opens a process, by another of its threads when the first one has ended and has no memory
// any more.
func openThread(pid int) (*procmap.Process, error) {
	p, err := procmap.Open(pid)
	if !errors.Is(err, procmap.ErrNoMemory) {
		return p, err
	}
	tids, _ := procfs.ThreadsOf(pid)
	for _, tid := range tids {
		if p, err := procmap.Open(tid); err == nil {
			return p, nil
		}
	}
	return nil, err
}

// ownPages returns the pages of a process's own in its executable mappings of files. After an error
// it returns those before it. The process may move a mapping between the list of them and the look
// at it.
func ownPages(process *procmap.Process) (all []procmap.OwnPages, err error) {
	vmas, err := codeFiles(process)
	for range looks {
		if err != nil {
			return all, err
		}
		own, err := process.Own(vmas)
		all = append(all, own...)
		if err != nil {
			return all, err
		}
		before := vmas
		if vmas, err = codeFiles(process); err == nil && slices.EqualFunc(before, vmas, isMapping) {
			return all, nil
		}
	}
	return all, cmp.Or(err, errMaps)
}

// codeFiles returns the executable mappings of files and of the vdso.
func codeFiles(process *procmap.Process) ([]procmap.VMA, error) {
	vmas, err := process.Code()
	return slices.DeleteFunc(vmas, func(v procmap.VMA) bool { return reach.IsMemory(v) && v.Kind() != procmap.KindVDSO }), err
}

// isMapping reports whether two VMAs show the same bytes at the same addresses.
func isMapping(a, b procmap.VMA) bool {
	return a.Start == b.Start && a.End == b.End && a.Offset == b.Offset && a.Dev == b.Dev && a.Inode == b.Inode
}

// lookAgain ends the work, and looks once more at the processes that are still there: first at
// those that have copies, then at those that nobody has looked at yet.
func (r *rewrites) lookAgain() {
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
func (r *rewrites) leaveAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sights {
		r.leave(s)
	}
}

// errTooMany is why nobody looked at a process at the end.
var errTooMany = errors.New("too many processes ran")

// close ends everything.
func (r *rewrites) close() {
	r.stop()
	r.leaveAll()
	r.release()
}

// stop ends the work.
func (r *rewrites) stop() {
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

// fileSpan is a range of offsets in a file: start <= at < end.
type fileSpan struct{ start, end addr.Offset }

// join sorts spans by their starts and joins those that touch.
func join(spans []fileSpan) []fileSpan {
	slices.SortFunc(spans, func(a, b fileSpan) int { return cmp.Compare(a.start, b.start) })
	var joined []fileSpan
	for _, next := range spans {
		if last := len(joined) - 1; last >= 0 && next.start <= joined[last].end {
			joined[last].end = max(joined[last].end, next.end)
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

// in returns the spans of a file that a process has rewritten, and may have: those that are of any.
func (s *lookedAt) in(o *objects.Object, ofAny []fileSpan) []fileSpan {
	if s.many {
		return []fileSpan{{0, math.MaxUint64}}
	}
	spans := slices.Clone(ofAny)
	for w := range s.found {
		if w.isOf(o) {
			spans = append(spans, fileSpan{w.start, w.end})
		}
	}
	return join(spans)
}

// ofAny returns the spans that may be of any file of the process, of those in its stacks: their file
// system numbers files in its own way, and the file has another name in the stacks.
func (s *lookedAt) ofAny(files map[*objects.Object]bool) (spans []fileSpan) {
	for w := range s.found {
		isOne := w.dev.Major != 0 || w.inode == 0 // the vdso
		for o := range files {
			isOne = isOne || w.isOf(o)
		}
		if !isOne {
			spans = append(spans, fileSpan{w.start, w.end})
		}
	}
	return spans
}

// notes returns what a profile says of rewritten pages.
func (r *rewrites) notes() []string {
	var notes []string
	for pid, s := range r.sights {
		notes = append(notes, s.notes(pid)...)
	}
	slices.Sort(notes)
	if more := len(notes) - mostRewritten; more > 0 {
		notes = append(notes[:mostRewritten], fmt.Sprintf("rewritten in memory: pages of %d files more", more))
	}
	return append(notes, r.unknown()...)
}

// mostRewritten is how many files a profile names of which a process has rewritten pages.
const mostRewritten = 20

// notes returns what a profile says of the rewritten pages of one process.
func (s *lookedAt) notes(pid int) (notes []string) {
	type file struct{ process, path string }
	spans := map[file][]fileSpan{}
	for w := range s.found {
		f := file{w.process, w.path}
		spans[f] = append(spans[f], fileSpan{w.start, w.end})
	}
	for f, list := range spans {
		pages := 0
		for _, part := range join(list) {
			pages += int(part.end-part.start) / os.Getpagesize()
		}
		notes = append(notes, profile.RewrittenNote(f.process, pid, pages, f.path))
	}
	if s.many {
		notes = append(notes, profile.AllRewrittenNote(s.name, pid))
	}
	return notes
}

// unknown returns what a profile says of the processes for which nobody could look.
func (r *rewrites) unknown() (notes []string) {
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
		notes = append(notes, fmt.Sprintf("rewritten in memory: not known of %d samples: %v", r.missed, errTooMany))
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
