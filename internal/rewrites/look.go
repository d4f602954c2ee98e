package rewrites

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/procmap"
)

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
	_, err := patience.InTime(pid, limit, func() (struct{}, error) {
		l.look(pid, time.Now().Add(limit/2))
		return struct{}{}, nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !l.listed {
		return nil, err
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
		process, err = procmap.Open(pid)
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
